"""The tables of launched arms: what was asked, what was measured, and which may be used again."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gatekeeper.storage.base import NOW, Base, Json, JsonList

ROLES = "role in ('baseline', 'control', 'candidate')"


class ArmRow(Base):
    """One launched engine configuration, in the run and attempt that launched it."""

    __tablename__ = "arms"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    run_id: Mapped[UUID] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    role: Mapped[str]
    fingerprint: Mapped[str | None]
    plan: Mapped[Json]
    argv: Mapped[JsonList]
    engine: Mapped[Json | None]
    effective: Mapped[Json | None]
    exercises: Mapped[JsonList] = mapped_column(server_default=text("'[]'"))
    skipped: Mapped[JsonList] = mapped_column(server_default=text("'[]'"))
    stops: Mapped[JsonList] = mapped_column(server_default=text("'[]'"))
    failure: Mapped[Json | None]
    complete: Mapped[bool] = mapped_column(server_default=text("false"))
    started_at: Mapped[datetime] = mapped_column(server_default=NOW)
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint(ROLES, name="role"),
        CheckConstraint("not complete or failure is null", name="complete_without_failure"),
        Index(None, "run_id", "attempt"),
    )


class RunArmRow(Base):
    """Which arm plays a role in an attempt of a run: its own, or a baseline that an earlier run measured."""

    __tablename__ = "run_arms"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    arm_id: Mapped[int] = mapped_column(ForeignKey("arms.id"), index=True)

    __table_args__ = (CheckConstraint(ROLES, name="role"),)


class OfItem:
    """What an arm has of one item of a suite, in one mode."""

    arm_id: Mapped[int] = mapped_column(ForeignKey("arms.id", ondelete="CASCADE"), primary_key=True)
    suite: Mapped[str] = mapped_column(primary_key=True)
    mode: Mapped[str] = mapped_column(primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)


class MeasurementRow(OfItem, Base):
    """One metric of one item. Never NaN or infinite: then `value` is null and `reason` says why."""

    __tablename__ = "measurements"

    metric: Mapped[str] = mapped_column(primary_key=True)
    cluster: Mapped[str]
    value: Mapped[float | None]
    reason: Mapped[str | None]
    batch: Mapped[int] = mapped_column(server_default="0")
    context_tokens: Mapped[int | None]

    __table_args__ = (
        CheckConstraint("value > '-infinity' and value < 'infinity'", name="finite"),
        CheckConstraint("value is not null or reason is not null", name="reason_for_null"),
    )


class TraceRow(OfItem, Base):
    """The scored tokens of one item: `payload` has token_ids, token_logprobs, top_ids, top_logprobs, context_tokens."""

    __tablename__ = "traces"

    cluster: Mapped[str]
    batch: Mapped[int] = mapped_column(server_default="0")
    payload: Mapped[Json]


class AnswerRow(OfItem, Base):
    """What an arm answered to one item: `payload` has prompt, expected, text, options and places."""

    __tablename__ = "answers"

    payload: Mapped[Json]


class BaselineRow(Base):
    """A measured baseline for later runs of the same fingerprint; at most one of them is not retired."""

    __tablename__ = "baselines"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    fingerprint: Mapped[str]
    baseline_arm_id: Mapped[int] = mapped_column(ForeignKey("arms.id"))
    control_arm_id: Mapped[int] = mapped_column(ForeignKey("arms.id"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    pinned: Mapped[bool] = mapped_column(server_default=text("false"))
    retired_at: Mapped[datetime | None]

    __table_args__ = (
        Index("uq_baselines_active", "fingerprint", unique=True, postgresql_where=text("retired_at is null")),
        Index(None, "created_at"),
    )
