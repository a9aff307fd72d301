"""Filtered, paged reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, cast, or_, select, tuple_
from sqlalchemy.orm import Session, defer

from gatekeeper.storage.base import StorableText
from gatekeeper.storage.tables import DeltaRow, RunRow

Condition = Callable[[Any], ColumnElement[bool]]


def _any_text(q: str) -> ColumnElement[bool]:
    columns = (
        RunRow.label,
        RunRow.model,
        RunRow.repo,
        RunRow.commit,
        RunRow.author,
        cast(RunRow.id, StorableText),
    )
    return or_(*(column.icontains(q, autoescape=True) for column in columns))


RUN_CONDITIONS: Final[Mapping[str, Condition]] = {
    "model": lambda value: RunRow.model == value,
    "verdict": lambda value: RunRow.verdict == value,
    "state": lambda value: RunRow.state == value,
    "scheme": lambda value: RunRow.scheme == value,
    "since": lambda value: RunRow.created_at >= value,
    "q": _any_text,
}
DELTA_CONDITIONS: Final[Mapping[str, Condition]] = {
    "run_id": lambda value: DeltaRow.run_id == value,
    "model": lambda value: DeltaRow.model == value,
    "metric": lambda value: DeltaRow.metric == value,
    "scheme": lambda value: DeltaRow.scheme == value,
    "finding": lambda value: DeltaRow.finding == value,
    "since": lambda value: DeltaRow.created_at >= value,
}


def list_runs(
    session: Session, conditions: Mapping[str, Any], *, after: tuple[datetime, UUID] | None, limit: int
) -> list[RunRow]:
    """Runs that meet all conditions (keys of RUN_CONDITIONS), newest first, without plan and report."""
    statement = select(RunRow).where(*(RUN_CONDITIONS[name](value) for name, value in conditions.items()))
    if after is not None:
        statement = statement.where(tuple_(RunRow.created_at, RunRow.id) < tuple_(*after))
    ordered = statement.order_by(RunRow.created_at.desc(), RunRow.id.desc()).limit(limit)
    return list(session.scalars(ordered.options(defer(RunRow.plan), defer(RunRow.report))))


def list_deltas(
    session: Session, conditions: Mapping[str, Any], *, after: int | None, limit: int
) -> list[DeltaRow]:
    """Deltas that meet all conditions (keys of DELTA_CONDITIONS), newest first."""
    statement = select(DeltaRow).where(*(DELTA_CONDITIONS[name](value) for name, value in conditions.items()))
    if after is not None:
        statement = statement.where(DeltaRow.id < after)
    return list(session.scalars(statement.order_by(DeltaRow.id.desc()).limit(limit)))
