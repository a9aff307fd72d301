"""The tables of runs and of what judging them yields. Those of arms are in `arm_tables`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Outcome, Verdict
from gatekeeper.storage.base import NOW, Base, Json, JsonList


def one_of(column: str, values: type[RunState | Verdict | Outcome]) -> str:
    """The condition that `column` is one of an enumeration's values (or null)."""
    return f"{column} in ({', '.join(repr(str(value)) for value in values)})"


class ModelRow(Base):
    """A model that the operator registered."""

    __tablename__ = "models"

    name: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str]
    revision: Mapped[str | None]
    shape: Mapped[Json | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class RunRow(Base):
    """A proposed change on its way to a verdict. `takeovers`: leases expired since the last submission."""

    __tablename__ = "runs"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    state: Mapped[str]
    device: Mapped[str]
    plan: Mapped[Json]

    model: Mapped[str]
    scheme: Mapped[str]
    eviction: Mapped[str]
    label: Mapped[str]
    repo: Mapped[str | None]
    commit: Mapped[str | None]
    author: Mapped[str | None]

    idempotency_key: Mapped[str | None] = mapped_column(unique=True)
    request_hash: Mapped[str]

    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    queued_at: Mapped[datetime] = mapped_column(server_default=NOW)
    rung_at: Mapped[datetime] = mapped_column(server_default=NOW)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    attempt: Mapped[int] = mapped_column(server_default=text("1"))
    takeovers: Mapped[int] = mapped_column(server_default=text("0"))
    lease_owner: Mapped[str | None]
    lease_expires_at: Mapped[datetime | None]
    cancel_requested: Mapped[bool] = mapped_column(server_default=text("false"))

    progress: Mapped[Json | None]
    verdict: Mapped[str | None]
    sentence: Mapped[str | None]
    report: Mapped[Json | None]

    __table_args__ = (
        CheckConstraint(one_of("state", RunState), name="state"),
        CheckConstraint(one_of("verdict", Verdict), name="verdict"),
        CheckConstraint("(state = 'running') = (lease_owner is not null)", name="lease_while_running"),
        CheckConstraint("(lease_owner is null) = (lease_expires_at is null)", name="lease_expires"),
        CheckConstraint("(state = 'finished') = (verdict is not null)", name="verdict_when_finished"),
        Index(None, "created_at", "id"),
        Index(None, "model", "created_at", "id"),
        Index(None, "scheme", "created_at", "id"),
        Index(None, "verdict", "created_at", "id"),
        Index("ix_runs_open", "state", "queued_at", postgresql_where=text("state in ('queued', 'running')")),
    )


class DeltaRow(Base):
    """One delta of a finished run, so that questions across runs are one query."""

    __tablename__ = "deltas"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    run_id: Mapped[UUID] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    model: Mapped[str]
    scheme: Mapped[str]
    eviction: Mapped[str]
    label: Mapped[str]

    metric: Mapped[str]
    suite: Mapped[str]
    mode: Mapped[str]
    group: Mapped[str]
    estimate: Mapped[float]
    lower: Mapped[float | None]
    upper: Mapped[float | None]
    document: Mapped[Json]
    """The whole delta as it was reported; the columns above are for asking."""

    finding: Mapped[str | None]
    """The outcome of the rule on this delta; None where no rule speaks of it."""
    severity: Mapped[str | None]
    detail: Mapped[str | None]

    __table_args__ = (
        CheckConstraint(one_of("finding", Outcome), name="finding"),
        CheckConstraint("estimate > '-infinity' and estimate < 'infinity'", name="finite"),
        Index(None, "run_id", "metric"),
        Index(None, "metric", "model", "id"),
        Index(None, "model", "id"),
        Index(None, "scheme", "id"),
        Index(None, "finding", "id"),
        Index(None, "created_at"),
    )


class EventRow(Base):
    """Something that happened to a run.

    Whoever adds an event has updated the run's row in the same transaction and so holds its lock: within a
    run, events become visible in the order of `seq`, and a reader that remembers the last one misses none.
    """

    __tablename__ = "events"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=NOW)
    kind: Mapped[str]
    payload: Mapped[Json]

    __table_args__ = (Index("ix_events_states", "kind", postgresql_where=text("kind = 'state'")),)


class ArtifactRow(Base):
    """A log or another text that a run left behind."""

    __tablename__ = "artifacts"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    content: Mapped[str]
    truncated: Mapped[bool]


class WaiverRow(Base):
    """An exception for one metric of one change. `change_key`: what the runs of that change share."""

    __tablename__ = "waivers"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    run_id: Mapped[UUID] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    """The run on which it was granted."""
    change_key: Mapped[str] = mapped_column(index=True)
    metric: Mapped[str]
    owner: Mapped[str]
    reason: Mapped[str]
    granted_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]

    __table_args__ = (CheckConstraint("expires_at > granted_at", name="expires_later"),)


class PromotionRow(Base):
    """A configuration that passed and became its model's reference; the newest of a model is in effect."""

    __tablename__ = "promotions"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    run_id: Mapped[UUID] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    model: Mapped[str]
    config: Mapped[Json]
    flags: Mapped[JsonList]
    """The engine's flags exactly as the candidate that passed had them."""
    engine: Mapped[Json | None]
    promoted_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (Index(None, "model", "id"),)
