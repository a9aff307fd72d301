"""How the distance from the baseline grows, or does not, while the model decodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from gatekeeper.domain.policy import Policy
from gatekeeper.domain.verdict import CurvePoint, Delta
from gatekeeper.services.views import RunDetail
from gatekeeper.web import figures, line_charts
from gatekeeper.web.line_charts import Chart, Point

CURVED: Final = ("decode_kl", "top1_agreement", "decode_nll")
STYLES: Final = {"cold": "first", "warm": "second"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveCell:
    """A mean, and its bounds where they say more."""

    mean: str
    bounds: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveRow:
    """One stretch of the decode: the mean of every series there."""

    stretch: str
    values: tuple[CurveCell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One metric along the decode, drawn and as a table."""

    title: str
    unit: str
    chart: Chart
    columns: tuple[str, ...]
    rows: tuple[CurveRow, ...]


def fidelity_curves(run: RunDetail, policy: Policy) -> tuple[Curve, ...]:
    """A curve for each metric that was scored token by token."""
    curves = []
    for metric in CURVED:
        measured = [delta for delta in run.deltas if _is_drawn(delta, metric)]
        if measured:
            control = [delta for delta in run.noise.deltas if _is_drawn(delta, metric)]
            curves.append(_curve(metric, measured, control[:1], policy))
    return tuple(curves)


def _is_drawn(delta: Delta, metric: str) -> bool:
    """Cold and warm are the cache's own states; of the others the findings speak."""
    return delta.metric == metric and delta.mode in STYLES and len(delta.curve) > 1


def _curve(metric: str, measured: Sequence[Delta], control: Sequence[Delta], policy: Policy) -> Curve:
    named = [(f"candidate, {delta.mode}" if len(measured) > 1 else "candidate", delta) for delta in measured]
    styled = [(name, STYLES[delta.mode], _points(delta)) for name, delta in named]
    styled += [("second baseline launch", "noise", _points(delta)) for delta in control]
    bound = next((rule.bound for rule in policy.rules if (rule.metric, rule.subset) == (metric, "all")), None)
    return Curve(
        title=figures.title(metric),
        unit=figures.unit(metric),
        chart=line_charts.chart(
            styled,
            limit=None if bound is None else (bound, f"limit {figures.bound_mark(metric, bound)}"),
            base=figures.neutral(metric),
            write=_tick(metric),
            label=f"{figures.title(metric)} along the decode; the table below has the same figures",
        ),
        columns=(*(name for name, _ in named), *("second baseline launch" for _ in control)),
        rows=_rows(metric, [*measured, *control]),
    )


def _rows(metric: str, deltas: Sequence[Delta]) -> tuple[CurveRow, ...]:
    """One row per stretch of the first series; a series cut otherwise has no value there."""
    cells = [{(point.start, point.end): point for point in delta.curve} for delta in deltas]
    return tuple(
        CurveRow(
            stretch=f"{point.start + 1} to {point.end}",
            values=tuple(_cell(metric, cell.get((point.start, point.end))) for cell in cells),
        )
        for point in deltas[0].curve
    )


def _cell(metric: str, point: CurvePoint | None) -> CurveCell:
    if point is None:
        return CurveCell(mean=figures.NOT_MEASURED, bounds="")
    is_known = point.lower is not None and point.upper is not None
    bounds = figures.span(metric, point.lower, point.upper) if is_known else ""
    return CurveCell(mean=figures.number(metric, point.estimate), bounds=bounds)


def _points(delta: Delta) -> list[Point]:
    return [
        Point(x=(point.start + point.end) / 2, y=point.estimate, low=point.lower, high=point.upper)
        for point in delta.curve
    ]


def _tick(metric: str) -> Callable[[float], str]:
    return _percent if figures.unit(metric) == "" else partial(str.format, "{:g}")


def _percent(value: float) -> str:
    return f"{100 * value:g}%"
