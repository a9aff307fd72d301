"""Line charts: series over one pair of axes, values in, coordinates out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gatekeeper.web import axes
from gatekeeper.web.axes import Mark, Scale


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One series of a chart: `points` as SVG wants them, `dots` one by one, `band` the outline of its intervals."""

    name: str
    style: str
    points: str
    band: str
    dots: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A line chart with its axes."""

    width: int
    height: int
    label: str
    left: float
    right: float
    bottom: float
    x_marks: tuple[Mark, ...]
    y_marks: tuple[Mark, ...]
    x_title: str
    events: tuple[Mark, ...]
    limit: Mark | None
    lines: tuple[Line, ...]


CHART_WIDTH, CHART_HEIGHT = 360, 190
CHART_LEFT, CHART_RIGHT, CHART_TOP, CHART_BOTTOM = 46, 350, 14, 158


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A value at x, with its interval where one is known."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


def chart(
    series: Sequence[tuple[str, str, Sequence[Point]]],
    *,
    limit: tuple[float, str] | None,
    base: float | None,
    write: Callable[[float], str],
    label: str,
    x_title: str = "decoded tokens",
    events: Sequence[tuple[float, str]] = (),
) -> Chart:
    """Draw series (name, style, points) over one pair of axes.

    `base`: a value that the axis must show; `events`: what happened at an x.
    """
    points = [point for _, _, points in series for point in points]
    xs = [point.x for point in points]
    values = [value for point in points for value in (point.y, point.low, point.high)]
    shown = [value for value in (*values, limit[0] if limit else None, base) if value is not None]
    ticks = axes.nice_ticks(min(shown), max(shown))
    x = axes.scale(0.0, max(xs), CHART_LEFT, CHART_RIGHT)
    y = axes.scale(ticks[0], ticks[-1], CHART_BOTTOM, CHART_TOP)
    return Chart(
        width=CHART_WIDTH,
        height=CHART_HEIGHT,
        label=label,
        left=CHART_LEFT,
        right=CHART_RIGHT,
        bottom=CHART_BOTTOM,
        x_marks=tuple(Mark(at=x(value), text=f"{value:g}") for value in _x_ticks(max(xs))),
        y_marks=tuple(Mark(at=y(value), text=write(value)) for value in ticks),
        x_title=x_title,
        events=tuple(axes.mark(x(at), text, CHART_WIDTH) for at, text in events),
        limit=Mark(at=y(limit[0]), text=limit[1]) if limit else None,
        lines=tuple(_line(name, style, points, x, y) for name, style, points in series),
    )


def _x_ticks(last: float) -> Iterable[float]:
    return [value for value in axes.nice_ticks(0.0, last) if value <= last * 1.001]


def _line(name: str, style: str, points: Sequence[Point], x: Scale, y: Scale) -> Line:
    dots = tuple((x(point.x), y(point.y)) for point in points)
    above = [(x(point.x), y(point.high)) for point in points if point.high is not None]
    below = [(x(point.x), y(point.low)) for point in points if point.low is not None]
    is_exact = above == below
    return Line(
        name=name,
        style=style,
        points=axes.path(dots),
        dots=dots,
        band="" if is_exact else axes.path([*above, *reversed(below)]),
    )
