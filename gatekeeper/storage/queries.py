"""Filtered, paged reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, case, cast, func, or_, select, tuple_
from sqlalchemy.orm import Session, aliased, defer

from gatekeeper.domain.run import RunState
from gatekeeper.storage.base import Json, StorableText
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """A run without plan and report, but with its arms' configurations and its place in the queue."""

    run: RunRow
    baseline: Json
    candidate: Json
    ahead: int | None


def list_runs(
    session: Session, conditions: Mapping[str, Any], *, after: tuple[datetime, UUID] | None, limit: int
) -> list[ListedRun]:
    """Runs that meet all conditions (keys of RUN_CONDITIONS), newest first."""
    configs = (RunRow.plan["baseline", "config"], RunRow.plan["candidate", "config"])
    statement = select(RunRow, *configs, _queued_before(RunRow)).where(
        *(RUN_CONDITIONS[name](value) for name, value in conditions.items())
    )
    if after is not None:
        statement = statement.where(tuple_(RunRow.created_at, RunRow.id) < tuple_(*after))
    ordered = statement.order_by(RunRow.created_at.desc(), RunRow.id.desc()).limit(limit)
    rows = session.execute(ordered.options(defer(RunRow.plan), defer(RunRow.report)))
    return [
        ListedRun(run=run, baseline=baseline, candidate=candidate, ahead=ahead)
        for run, baseline, candidate, ahead in rows
    ]


def count_ahead(session: Session, run_id: UUID) -> int | None:
    """How many queued runs for the same kind of device came before this one; None unless it is queued itself."""
    return session.scalar(select(_queued_before(RunRow)).where(RunRow.id == run_id))


def _queued_before(run: type[RunRow]) -> ColumnElement[int | None]:
    earlier = aliased(RunRow)
    count = (
        select(func.count())
        .where(
            earlier.state == RunState.QUEUED,
            earlier.device == run.device,
            tuple_(earlier.queued_at, earlier.id) < tuple_(run.queued_at, run.id),
        )
        .correlate(run)
        .scalar_subquery()
    )
    return case((run.state == RunState.QUEUED, count), else_=None)


def list_deltas(
    session: Session, conditions: Mapping[str, Any], *, after: int | None, limit: int
) -> list[DeltaRow]:
    """Deltas that meet all conditions (keys of DELTA_CONDITIONS), newest first."""
    statement = select(DeltaRow).where(*(DELTA_CONDITIONS[name](value) for name, value in conditions.items()))
    if after is not None:
        statement = statement.where(DeltaRow.id < after)
    return list(session.scalars(statement.order_by(DeltaRow.id.desc()).limit(limit)))
