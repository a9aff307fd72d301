"""How the distance from the baseline grows, or does not, while the model decodes and with the length of the context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from gatekeeper.domain.policy import Policy
from gatekeeper.domain.verdict import ContextPoint, CurvePoint, Delta
from gatekeeper.services.views import RunDetail
from gatekeeper.web import figures, line_charts
from gatekeeper.web.line_charts import Chart, Point

CURVED: Final = ("decode_kl", "top1_agreement", "decode_nll")
STYLES: Final = {"cold": "first", "warm": "second"}


Measured: TypeAlias = CurvePoint | ContextPoint


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveCell:
    """A mean, and its bounds where they say more."""

    mean: str
    bounds: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveRow:
    """One stretch of the decode, or one length of context: the mean of every series there."""

    place: str
    values: tuple[CurveCell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One metric along the decode or over lengths of context, drawn and as a table of `rows` by `places`."""

    title: str
    unit: str
    along: str
    places: str
    chart: Chart
    columns: tuple[str, ...]
    rows: tuple[CurveRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Axis:
    """What a curve runs along, and its points of a delta."""

    along: str
    places: str
    x_title: str
    points: Callable[[Delta], Sequence[Measured]]


def fidelity_curves(run: RunDetail, policy: Policy) -> tuple[Curve, ...]:
    """A curve along the decode for each metric that was scored token by token."""
    return tuple(_curves(run, policy, _DECODE))


def context_curves(run: RunDetail, policy: Policy) -> tuple[Curve, ...]:
    """A curve over lengths of context for each such metric; none where all contexts were of one length."""
    return tuple(_curves(run, policy, _CONTEXT))


def _curves(run: RunDetail, policy: Policy, axis: _Axis) -> Iterator[Curve]:
    for metric in CURVED:
        measured = [delta for delta in run.deltas if _is_drawn(delta, metric, axis)]
        if measured:
            control = [delta for delta in run.noise.deltas if _is_drawn(delta, metric, axis)]
            yield _curve(metric, measured, control[:1], policy, axis)


def _is_drawn(delta: Delta, metric: str, axis: _Axis) -> bool:
    """Cold and warm are the cache's own states; of the others the findings speak."""
    return delta.metric == metric and delta.mode in STYLES and len(axis.points(delta)) > 1


def _curve(
    metric: str, measured: Sequence[Delta], control: Sequence[Delta], policy: Policy, axis: _Axis
) -> Curve:
    named = [(f"candidate, {delta.mode}" if len(measured) > 1 else "candidate", delta) for delta in measured]
    styled = [(name, STYLES[delta.mode], _drawn(delta, axis)) for name, delta in named]
    styled += [("second baseline launch", "noise", _drawn(delta, axis)) for delta in control]
    bound = next((rule.bound for rule in policy.rules if (rule.metric, rule.subset) == (metric, "all")), None)
    return Curve(
        title=figures.title(metric),
        unit=figures.unit(metric),
        along=axis.along,
        places=axis.places,
        chart=line_charts.chart(
            styled,
            limit=None if bound is None else (bound, f"limit {figures.bound_mark(metric, bound)}"),
            base=figures.neutral(metric),
            write=_tick(metric),
            label=f"{figures.title(metric)} {axis.along}; the table below has the same figures",
            x_title=axis.x_title,
        ),
        columns=(*(name for name, _ in named), *("second baseline launch" for _ in control)),
        rows=_rows(metric, [*measured, *control], axis),
    )


def _rows(metric: str, deltas: Sequence[Delta], axis: _Axis) -> tuple[CurveRow, ...]:
    """One row per place of the first series; a series cut otherwise has no value there."""
    cells = [{_name(point): point for point in axis.points(delta)} for delta in deltas]
    return tuple(
        CurveRow(place=place, values=tuple(_cell(metric, cell.get(place)) for cell in cells))
        for place in cells[0]
    )


def _cell(metric: str, point: Measured | None) -> CurveCell:
    if point is None:
        return CurveCell(mean=figures.NOT_MEASURED, bounds="")
    is_known = point.lower is not None and point.upper is not None
    bounds = figures.span(metric, point.lower, point.upper) if is_known else ""
    return CurveCell(mean=figures.number(metric, point.estimate), bounds=bounds)


def _drawn(delta: Delta, axis: _Axis) -> list[Point]:
    return [
        Point(x=_middle(point), y=point.estimate, low=point.lower, high=point.upper)
        for point in axis.points(delta)
    ]


def _middle(point: Measured) -> float:
    return (point.start + point.end) / 2 if isinstance(point, CurvePoint) else point.context_tokens


def _name(point: Measured) -> str:
    if isinstance(point, CurvePoint):
        return f"{point.start + 1} to {point.end}"
    return f"{point.context_tokens:,}"


_DECODE: Final = _Axis(
    along="along the decode", places="Tokens", x_title="decoded tokens", points=lambda delta: delta.curve,
)  # fmt: skip
_CONTEXT: Final = _Axis(
    along="by context length", places="Context", x_title="tokens of context",
    points=lambda delta: delta.context_curve,
)  # fmt: skip


def _tick(metric: str) -> Callable[[float], str]:
    return _percent if figures.unit(metric) == "" else partial(str.format, "{:g}")


def _percent(value: float) -> str:
    return f"{100 * value:g}%"
