"""The view model of the history: one metric of one model over its runs, engine versions marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from gatekeeper.domain.policy import Severity
from gatekeeper.domain.verdict import Outcome
from gatekeeper.services.assemble import candidate_name
from gatekeeper.storage.queries import PastDelta
from gatekeeper.web import badges, figures, line_charts, links
from gatekeeper.web.badges import Badge
from gatekeeper.web.line_charts import Chart, Point
from gatekeeper.web.times import Moment, moment


@dataclass(frozen=True, kw_only=True, slots=True)
class PastLine:
    """One run's figure. `is_new_engine`: the engine is another one than the run before had."""

    number: int
    url: str
    name: str
    candidate: str
    estimate: str
    bounds: str
    badge: Badge | None
    engine: str
    is_new_engine: bool
    submitted: Moment


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """A metric over time, drawn and as a table, the newest first."""

    title: str
    unit: str
    chart: Chart | None
    lines: tuple[PastLine, ...]


def past(metric: str, deltas: Sequence[PastDelta], *, now: datetime) -> Past:
    """Describe deltas, the newest first. One run alone is no course."""
    ordered = list(reversed(deltas))
    engines = [None, *(delta.engine for delta in ordered)]
    lines = [
        _line(metric, number, delta, is_new=engines[number - 1] not in (None, delta.engine), now=now)
        for number, delta in enumerate(ordered, start=1)
    ]
    return Past(
        title=figures.title(metric),
        unit=figures.unit(metric),
        chart=_chart(metric, ordered, lines) if len(ordered) > 1 else None,
        lines=tuple(reversed(lines)),
    )


def _line(metric: str, number: int, delta: PastDelta, *, is_new: bool, now: datetime) -> PastLine:
    badge = None
    if delta.finding is not None:
        badge = badges.of_finding(Outcome(delta.finding), cast("Severity | None", delta.severity))
    return PastLine(
        number=number,
        url=links.run(delta.run_id),
        name=delta.label,
        candidate=candidate_name(delta.baseline, delta.candidate),
        estimate=figures.number(metric, delta.estimate),
        bounds=figures.span(metric, delta.lower, delta.upper),
        badge=badge,
        engine=delta.engine or figures.NOT_MEASURED,
        is_new_engine=is_new,
        submitted=moment(delta.created_at, now=now),
    )


def _chart(metric: str, ordered: Sequence[PastDelta], lines: Sequence[PastLine]) -> Chart:
    points = [
        Point(x=number, y=delta.estimate, low=delta.lower, high=delta.upper)
        for number, delta in enumerate(ordered, start=1)
    ]
    return line_charts.chart(
        [(figures.title(metric), "first", points)],
        limit=None,
        base=figures.neutral(metric),
        write="{:g}".format,
        label=f"{figures.title(metric)} run by run; the table below has the same figures",
        events=[(line.number, line.engine) for line in lines if line.is_new_engine],
        x_title="runs, the newest last",
    )
