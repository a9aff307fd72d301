"""Filtered, paged reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    Uuid,
    any_,
    bindparam,
    case,
    cast,
    column,
    func,
    literal,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session, aliased, defer

from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Outcome
from gatekeeper.storage.base import Json, StorableText
from gatekeeper.storage.tables import DeltaRow, RunRow

Condition = Callable[[Any], ColumnElement[bool]]


def _any_text(q: str) -> ColumnElement[bool]:
    """Any of the words that people know a run by has `q` in it. All are read as one text: that takes a sixth."""
    known = (
        RunRow.label,
        RunRow.model,
        RunRow.repo,
        RunRow.commit,
        RunRow.author,
        cast(RunRow.id, StorableText),
    )
    words = func.concat_ws("\n", *known)
    return func.lower(words).contains(func.lower(literal(_escaped(q), StorableText)), escape="/")


def _escaped(q: str) -> str:
    """What stands for itself in LIKE."""
    return re.sub("[/%_]", r"/\g<0>", q)


RUN_CONDITIONS: Final[Mapping[str, Condition]] = {
    "model": lambda value: RunRow.model == value,
    "verdict": lambda value: RunRow.verdict == value,
    "state": lambda value: RunRow.state == value,
    "scheme": lambda value: RunRow.scheme == value,
    "eviction": lambda value: RunRow.eviction == value,
    "author": lambda value: RunRow.author == value,
    "ref": lambda value: or_(RunRow.repo == value, RunRow.commit.startswith(value, autoescape=True)),
    "since": lambda value: RunRow.created_at >= value,
    "until": lambda value: RunRow.created_at < value,
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


CONFIGS: Final = {role: RunRow.plan[role, "config"] for role in ("baseline", "candidate")}
"""The configurations of a run's arms."""
OVER_ALL: Final = (DeltaRow.group == "all", DeltaRow.mode == "cold")
"""What stands for a metric where only one figure of it is shown."""


def _queued_before() -> ColumnElement[int | None]:
    earlier = aliased(RunRow)
    count = (
        select(func.count())
        .where(
            earlier.state == RunState.QUEUED,
            earlier.device == RunRow.device,
            tuple_(earlier.queued_at, earlier.id) < tuple_(RunRow.queued_at, RunRow.id),
        )
        .correlate(RunRow)
        .scalar_subquery()
    )
    return case((RunRow.state == RunState.QUEUED, count), else_=None)


QUEUED_BEFORE: Final = _queued_before()
"""How many runs for the same kind of device wait before this one; null unless it waits itself."""


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
    statement = select(RunRow, *CONFIGS.values(), QUEUED_BEFORE).where(
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
    return session.scalar(select(QUEUED_BEFORE).where(RunRow.id == run_id))


def list_deltas(
    session: Session, conditions: Mapping[str, Any], *, after: int | None, limit: int
) -> list[DeltaRow]:
    """Deltas that meet all conditions (keys of DELTA_CONDITIONS), newest first."""
    statement = select(DeltaRow).where(*(DELTA_CONDITIONS[name](value) for name, value in conditions.items()))
    if after is not None:
        statement = statement.where(DeltaRow.id < after)
    return list(session.scalars(statement.order_by(DeltaRow.id.desc()).limit(limit)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """One figure of one run, with the outcome of the rule that speaks of it, if one does."""

    estimate: float
    lower: float | None
    upper: float | None
    finding: Outcome | None
    severity: str | None


def list_headlines(
    session: Session, run_ids: Sequence[UUID], metrics: Sequence[str]
) -> dict[tuple[UUID, str], Headline]:
    """These metrics of these runs, over all items of the cold mode, by run and metric."""
    row = DeltaRow
    columns = select(row.run_id, row.metric, row.estimate, row.lower, row.upper, row.finding, row.severity)
    wanted = columns.where(_is_one_of(run_ids), row.metric.in_(metrics), *OVER_ALL)
    return {
        (found.run_id, found.metric): Headline(
            estimate=found.estimate,
            lower=found.lower,
            upper=found.upper,
            finding=Outcome(found.finding) if found.finding else None,
            severity=found.severity,
        )
        for found in session.execute(wanted)
    }


def _latest_by_model() -> Select[str, UUID, float]:
    """A metric's latest values up to delta `newest`, of each of `models` as many as `counts` says; a scan each.

    Its columns: model, run, estimate.
    """
    row = DeltaRow
    models, counts = bindparam("models", type_=ARRAY(StorableText)), bindparam("counts", type_=ARRAY(Integer))
    columns = column("model", StorableText), column("length", Integer)
    wanted = func.unnest(models, counts).table_valued(*columns, name="wanted").render_derived()
    latest = (
        select(row.run_id, row.estimate, row.id)
        .where(
            row.model == wanted.c.model,
            row.metric == bindparam("metric"),
            row.id <= bindparam("newest"),
            *OVER_ALL,
        )
        .order_by(row.id.desc())
        .limit(wanted.c.length)
        .lateral()
    )
    statement = select(wanted.c.model, latest.c.run_id, latest.c.estimate).join(latest, true())
    return statement.order_by(wanted.c.model, latest.c.id.desc())


LATEST_BY_MODEL: Final = _latest_by_model()
"""Put together once, which takes longer than to answer it."""


def list_courses(
    session: Session, metric: str, lengths: Mapping[str, int], *, up_to: Sequence[UUID]
) -> dict[str, list[tuple[UUID, float]]]:
    """By model, a metric's latest values up to the last of the runs `up_to`, the latest first: (run, estimate).

    `lengths`: by model, how many.
    """
    shown = session.scalars(select(DeltaRow.id).where(_is_one_of(up_to), DeltaRow.metric == metric))
    # Not `select max(id)`: PostgreSQL would look for it from the newest delta of all runs backwards.
    values = {"metric": metric, "newest": max(shown, default=0)}
    values |= {"models": [*lengths], "counts": [*lengths.values()]}
    courses: dict[str, list[tuple[UUID, float]]] = {model: [] for model in lengths}
    for model, run_id, estimate in session.execute(LATEST_BY_MODEL, values):
        courses[model].append((run_id, estimate))
    return courses


def _is_one_of(run_ids: Sequence[UUID]) -> ColumnElement[bool]:
    """One array instead of a parameter each, which would make another statement of every number of runs."""
    return DeltaRow.run_id == any_(literal(list(run_ids), ARRAY(Uuid)))


@dataclass(frozen=True, kw_only=True, slots=True)
class PastDelta:
    """One figure of a finished run, the configurations of its arms, and the engine that it speaks of."""

    run_id: UUID
    created_at: datetime
    label: str
    baseline: Json
    candidate: Json
    engine: str
    estimate: float
    lower: float | None
    upper: float | None
    finding: str | None
    severity: str | None


def list_past(
    session: Session, model: str, metric: str, *, scheme: str | None = None, limit: int
) -> list[PastDelta]:
    """A metric of a model over its latest runs, the latest first."""
    engine = RunRow.report["engine"]
    columns = (
        DeltaRow.run_id, RunRow.created_at, DeltaRow.label, DeltaRow.estimate, DeltaRow.lower, DeltaRow.upper,
        DeltaRow.finding, DeltaRow.severity, *(config.label(role) for role, config in CONFIGS.items()),
        func.concat_ws(" ", engine["name"].astext, engine["version"].astext).label("engine"),
    )  # fmt: skip
    statement = (
        select(*columns)
        .join(RunRow, RunRow.id == DeltaRow.run_id)
        .where(DeltaRow.model == model, DeltaRow.metric == metric, *OVER_ALL)
        .order_by(DeltaRow.id.desc())
        .limit(limit)
    )
    if scheme is not None:
        statement = statement.where(DeltaRow.scheme == scheme)
    return [PastDelta(**row) for row in session.execute(statement).mappings()]


def list_leases(session: Session) -> list[RunRow]:
    """The runs that workers hold, the longest held first."""
    statement = select(RunRow).where(RunRow.state == RunState.RUNNING).order_by(RunRow.started_at)
    return list(session.scalars(statement.options(defer(RunRow.plan), defer(RunRow.report))))


def count_queued(session: Session) -> list[tuple[str, int, datetime]]:
    """By kind of device: how many runs wait, and since when the first does."""
    statement = (
        select(RunRow.device, func.count(), func.min(RunRow.queued_at))
        .where(RunRow.state == RunState.QUEUED)
        .group_by(RunRow.device)
        .order_by(RunRow.device)
    )
    return [(device, count, since) for device, count, since in session.execute(statement)]
