"""Baselines that later runs reuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Interval, and_, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from gatekeeper.domain.change import UNDECLARED_CONCURRENCY
from gatekeeper.domain.errors import Conflict, NotFound
from gatekeeper.storage.arm_tables import ArmRow, BaselineRow, RunArmRow
from gatekeeper.storage.base import NOW, Json
from gatekeeper.storage.tables import RunRow


def find_baseline(session: Session, fingerprint: str, *, max_age: timedelta) -> BaselineRow | None:
    """The baseline in use for a fingerprint, if it is pinned or younger than `max_age`."""
    fresh = BaselineRow.created_at > NOW - literal(max_age, Interval)
    statement = select(BaselineRow).where(
        BaselineRow.fingerprint == fingerprint,
        BaselineRow.retired_at.is_(None),
        or_(BaselineRow.pinned, fresh),
    )
    return session.scalars(statement).one_or_none()


def find_noise(
    session: Session, *, arm: Json, suite: Json, concurrency: int, request_rate: float | None
) -> Json | None:
    """The noise floor that the newest judged run of an equal baseline, suite and load reported.

    What decides a fingerprint besides, engine build, hardware and data, only the worker knows.
    """
    noise, load = RunRow.report["noise"], RunRow.plan["change"]["deployment"]
    declared = load["concurrency"].as_integer()
    statement = (
        select(noise)
        .join(RunArmRow, and_(RunArmRow.run_id == RunRow.id, RunArmRow.attempt == RunRow.attempt))
        .join(ArmRow, ArmRow.id == RunArmRow.arm_id)
        .where(
            RunArmRow.role == "baseline",
            RunRow.model == arm["model"]["name"],
            ArmRow.plan == arm,
            RunRow.plan["suite"]["probes"] == suite["probes"],
            func.coalesce(declared, UNDECLARED_CONCURRENCY) == concurrency,
            load["request_rate"].as_float().is_not_distinct_from(request_rate),
            noise["deltas"][0].is_not(None),
        )
        .order_by(RunRow.finished_at.desc())
        .limit(1)
    )
    return session.scalars(statement).one_or_none()


def add_baseline(session: Session, fingerprint: str, *, baseline_arm_id: int, control_arm_id: int) -> None:
    """Put a baseline into use and retire the one before it; a pinned one stays in use instead."""
    in_use = (BaselineRow.fingerprint == fingerprint, BaselineRow.retired_at.is_(None))
    session.execute(update(BaselineRow).where(*in_use, ~BaselineRow.pinned).values(retired_at=NOW))
    statement = insert(BaselineRow).values(
        fingerprint=fingerprint, baseline_arm_id=baseline_arm_id, control_arm_id=control_arm_id
    )
    session.execute(
        statement.on_conflict_do_nothing(
            index_elements=[BaselineRow.fingerprint], index_where=BaselineRow.retired_at.is_(None)
        )
    )


def get_active(session: Session, baseline_id: int) -> BaselineRow:
    """A baseline that is in use, locked. Raises NotFound, and Conflict if it is retired."""
    statement = select(BaselineRow).where(BaselineRow.id == baseline_id).with_for_update()
    row = session.scalars(statement).one_or_none()
    if row is None:
        raise NotFound(f"baseline {baseline_id}")
    if row.retired_at is not None:
        raise Conflict(f"baseline {baseline_id} is retired")
    return row


def list_baselines(session: Session, *, retired: bool, limit: int) -> list[tuple[BaselineRow, ArmRow]]:
    """The newest baselines with their baseline arms; `retired` adds those no longer in use."""
    statement = select(BaselineRow, ArmRow).join(ArmRow, ArmRow.id == BaselineRow.baseline_arm_id)
    if not retired:
        statement = statement.where(BaselineRow.retired_at.is_(None))
    ordered = statement.order_by(BaselineRow.created_at.desc(), BaselineRow.id.desc()).limit(limit)
    return [(row, arm) for row, arm in session.execute(ordered)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependents:
    """What rests on an arm: how many attempts of runs, its own counted, and the newest of these runs by id and name."""

    attempts: int
    newest: tuple[tuple[UUID, str], ...]


def list_dependents(session: Session, arm_ids: Sequence[int], *, newest: int) -> dict[int, Dependents]:
    """What rests on each of these baseline arms, with its `newest` runs at most; none for an arm that serves no run."""
    arm, order = RunArmRow.arm_id, (RunRow.created_at.desc(), RunRow.id.desc(), RunArmRow.attempt.desc())
    ranked = (
        select(
            arm,
            RunRow.id,
            RunRow.label,
            func.count().over(partition_by=arm).label("attempts"),
            func.row_number().over(partition_by=arm, order_by=order).label("place"),
        )
        .join(RunRow, RunRow.id == RunArmRow.run_id)
        .where(arm.in_(arm_ids), RunArmRow.role == "baseline")
        .subquery()
    )
    found: dict[int, Dependents] = {}
    for row in session.execute(select(ranked).where(ranked.c.place <= newest).order_by(ranked.c.place)):
        known = found.get(row.arm_id, Dependents(attempts=row.attempts, newest=()))
        runs = dict(known.newest) | {row.id: row.label}
        found[row.arm_id] = replace(known, newest=tuple(runs.items()))
    return found
