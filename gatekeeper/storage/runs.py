"""Runs: their life from queued to finished, under a lease while a worker holds them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Interval, Select, and_, case, func, literal, or_, select, update
from sqlalchemy.orm import Session, defer

from gatekeeper.domain.errors import LeaseLost, NotFound
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.run import RunState
from gatekeeper.domain.text import storable
from gatekeeper.storage.base import NOW
from gatekeeper.storage.codec import dump_plan
from gatekeeper.storage.tables import RunRow

MAX_TAKEOVERS = 3
"""Leases of one submission that may expire before the run is given up."""

FREE = {"lease_owner": None, "lease_expires_at": None}
FRESH: dict[str, Any] = {
    **FREE,
    "state": RunState.QUEUED,
    "queued_at": NOW,
    "rung_at": NOW,
    "cancel_requested": False,
    "started_at": None,
    "progress": None,
}
"""The columns of a run that goes back to the queue."""


def add_run(session: Session, run_id: UUID, plan: Plan, *, key: str | None, request_hash: str) -> None:
    """Queue a new run."""
    change, candidate = plan.change, plan.candidate
    row = RunRow(
        id=run_id,
        state=RunState.QUEUED,
        device=candidate.device,
        plan=dump_plan(plan),
        model=change.model,
        scheme=candidate.config.quantization.scheme,
        eviction=candidate.config.eviction.policy,
        label=change.label,
        repo=change.ref.repo,
        commit=change.ref.commit,
        author=change.ref.author,
        idempotency_key=key,
        request_hash=request_hash,
    )
    session.add(row)
    session.flush()


def lock_key(session: Session, key: str) -> None:
    """Make other transactions that lock the same idempotency key wait until this one ends."""
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(storable(key), 0))))


def find_by_key(session: Session, key: str) -> RunRow | None:
    """The run that was submitted with this idempotency key."""
    return session.scalars(select(RunRow).where(RunRow.idempotency_key == key)).one_or_none()


def get_run(session: Session, run_id: UUID, *, lock: bool = False) -> RunRow:
    """The run; with `lock`, held for the rest of the transaction. Raises NotFound."""
    statement = select(RunRow).where(RunRow.id == run_id)
    if lock:
        statement = statement.with_for_update(key_share=True)
    return _one(session, statement, run_id)


def get_head(session: Session, run_id: UUID) -> RunRow:
    """The run; its plan and report, which are large, are read only if they are looked at. Raises NotFound."""
    head = select(RunRow).where(RunRow.id == run_id).options(defer(RunRow.plan), defer(RunRow.report))
    return _one(session, head, run_id)


def _one(session: Session, statement: Select[RunRow], run_id: UUID) -> RunRow:
    row = session.scalars(statement).one_or_none()
    if row is None:
        raise NotFound(f"run {run_id}")
    return row


def get_held_run(session: Session, run_id: UUID, owner: str) -> RunRow:
    """The run, locked for the rest of the transaction. Raises LeaseLost unless `owner` holds it."""
    held = and_(RunRow.id == run_id, RunRow.state == RunState.RUNNING, RunRow.lease_owner == owner)
    row = session.scalars(select(RunRow).where(held).with_for_update(key_share=True)).one_or_none()
    if row is None:
        raise LeaseLost(f"run {run_id}, worker {owner}")
    return row


def claim_run(session: Session, run_id: UUID, owner: str, lease_seconds: float) -> RunRow | None:
    """Take the run if it is queued or its lease has expired; None if there is nothing to take.

    One conditional UPDATE, so of any number of callers one wins.
    """
    expired = and_(
        RunRow.state == RunState.RUNNING, RunRow.lease_expires_at < NOW, RunRow.takeovers < MAX_TAKEOVERS
    )
    taken_over = case((RunRow.state == RunState.RUNNING, 1), else_=0)
    statement = (
        update(RunRow)
        .where(RunRow.id == run_id, ~RunRow.cancel_requested, or_(RunRow.state == RunState.QUEUED, expired))
        .values(
            state=RunState.RUNNING,
            lease_owner=owner,
            lease_expires_at=NOW + _seconds(lease_seconds),
            attempt=RunRow.attempt + taken_over,
            takeovers=RunRow.takeovers + taken_over,
            started_at=func.coalesce(RunRow.started_at, NOW),
        )
        .returning(RunRow)
    )
    return session.scalars(statement).one_or_none()


def extend_lease(session: Session, run_id: UUID, owner: str, lease_seconds: float) -> bool | None:
    """Renew the lease; return whether the run is to be cancelled, or None if `owner` holds it no more."""
    held = and_(RunRow.id == run_id, RunRow.state == RunState.RUNNING, RunRow.lease_owner == owner)
    statement = update(RunRow).where(held).values(lease_expires_at=NOW + _seconds(lease_seconds))
    return session.scalars(statement.returning(RunRow.cancel_requested)).one_or_none()


def set_columns(session: Session, run_id: UUID, **values: Any) -> None:
    """Change columns of a run that this transaction has locked."""
    session.execute(update(RunRow).where(RunRow.id == run_id).values(**values))


def list_expired(session: Session, now: datetime | None) -> list[RunRow]:
    """Running runs whose lease has run out, locked; those that another transaction holds are left out."""
    statement = select(RunRow).where(RunRow.state == RunState.RUNNING, RunRow.lease_expires_at < _at(now))
    return list(session.scalars(statement.with_for_update(key_share=True, skip_locked=True)))


def list_unanswered(
    session: Session, now: datetime | None, *, first: timedelta, last: timedelta
) -> list[RunRow]:
    """Queued runs whose bell was rung a while ago, locked. The while doubles from `first` up to `last`."""
    waited = func.greatest(literal(first, Interval), RunRow.rung_at - RunRow.queued_at)
    due = RunRow.rung_at + func.least(waited, literal(last, Interval))
    statement = select(RunRow).where(RunRow.state == RunState.QUEUED, due < _at(now))
    return list(session.scalars(statement.with_for_update(key_share=True, skip_locked=True)))


def list_resting_on(session: Session, waiver_id: int) -> list[RunRow]:
    """Finished runs whose report names this waiver, locked."""
    named = RunRow.report["waivers"].contains([{"id": waiver_id}])
    statement = select(RunRow).where(RunRow.state == RunState.FINISHED, named).order_by(RunRow.id)
    return list(session.scalars(statement.with_for_update(key_share=True)))


def list_finished(session: Session) -> list[tuple[UUID, str]]:
    """Id and label of all finished runs, the oldest first."""
    statement = select(RunRow.id, RunRow.label).where(RunRow.state == RunState.FINISHED)
    rows = session.execute(statement.order_by(RunRow.created_at, RunRow.id))
    return [(run_id, label) for run_id, label in rows]


def _at(now: datetime | None) -> Any:
    return NOW if now is None else literal(now, RunRow.queued_at.type)


def _seconds(seconds: float) -> Any:
    return literal(timedelta(seconds=seconds), Interval)
