"""Geometry of the charts: values in, coordinates out. The templates draw them as inline SVG, so they need no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from gatekeeper.web.badges import Tone

Anchor = Literal["start", "middle", "end"]
Scale = Callable[[float], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A labelled place on an axis."""

    at: float
    text: str
    anchor: Anchor = "middle"


@dataclass(frozen=True, kw_only=True, slots=True)
class Forest:
    """An interval against a limit. x coordinates; None: there is no such thing.

    `zone_x`, `zone_width`: where the rule holds. `is_open_*`: the interval goes on beyond the drawing.
    """

    width: int
    height: int
    label: str
    tone: Tone
    zone_x: float
    zone_width: float
    limit: Mark
    neutral: Mark
    low: float
    high: float
    is_open_low: bool
    is_open_high: bool
    dot: float
    noise: float | None


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


FOREST_WIDTH, FOREST_HEIGHT, FOREST_MARGIN = 220, 42, 10


def forest(
    *,
    estimate: float,
    lower: float | None,
    upper: float | None,
    limit: tuple[float, str],
    neutral: tuple[float, str],
    noise: float | None,
    holds_above: bool,
    tone: Tone,
    label: str,
) -> Forest:
    """Place an interval, a limit (value and its text), the value of no change and the noise floor on one axis."""
    shown = [value for value in (estimate, lower, upper, limit[0], neutral[0], noise) if value is not None]
    x = _scale(min(shown), max(shown), FOREST_MARGIN, FOREST_WIDTH - FOREST_MARGIN, slack=0.06)
    at_limit = x(limit[0])
    is_exact = lower == upper == estimate
    return Forest(
        width=FOREST_WIDTH,
        height=FOREST_HEIGHT,
        label=label,
        tone=tone,
        zone_x=at_limit if holds_above else 0.0,
        zone_width=round(FOREST_WIDTH - at_limit if holds_above else at_limit, 1),
        limit=_mark(at_limit, limit[1], FOREST_WIDTH),
        neutral=_mark(x(neutral[0]), neutral[1], FOREST_WIDTH),
        low=x(estimate) if lower is None and upper is None else (0.0 if lower is None else x(lower)),
        high=x(estimate)
        if lower is None and upper is None
        else (FOREST_WIDTH if upper is None else x(upper)),
        is_open_low=lower is None and upper is not None,
        is_open_high=upper is None and lower is not None,
        dot=x(estimate),
        noise=x(noise) if noise is not None and not is_exact else None,
    )


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
    ticks = nice_ticks(min(shown), max(shown))
    x = _scale(0.0, max(xs), CHART_LEFT, CHART_RIGHT)
    y = _scale(ticks[0], ticks[-1], CHART_BOTTOM, CHART_TOP)
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
        events=tuple(_mark(x(at), text, CHART_WIDTH) for at, text in events),
        limit=Mark(at=y(limit[0]), text=limit[1]) if limit else None,
        lines=tuple(_line(name, style, points, x, y) for name, style, points in series),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """The values of one arm, to be drawn on a line of their own."""

    label: str
    style: str
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnLane:
    """A lane in place: a dot per value, a stroke at the median, a line from least to largest."""

    label: str
    style: str
    y: float
    dots: tuple[float, ...]
    low: float
    high: float
    middle: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """Lanes over one axis."""

    width: int
    height: int
    bottom: float
    label: str
    marks: tuple[Mark, ...]
    lanes: tuple[DrawnLane, ...]


STRIP_WIDTH, STRIP_LEFT, LANE_HEIGHT = 360, 92, 17


def strip(lanes: Sequence[Lane], *, label: str) -> Strip:
    """Place the values of all lanes on one axis, which starts at zero: ratios of lengths are ratios of time."""
    highest = max(value for lane in lanes for value in lane.values)
    ticks = nice_ticks(0.0, highest)
    x = _scale(0.0, ticks[-1], STRIP_LEFT, STRIP_WIDTH - 4)
    bottom = LANE_HEIGHT * len(lanes) + 6
    return Strip(
        width=STRIP_WIDTH,
        height=bottom + 18,
        bottom=bottom,
        label=label,
        marks=tuple(_mark(x(value), f"{value:,.6g}", STRIP_WIDTH) for value in ticks),
        lanes=tuple(
            DrawnLane(
                label=lane.label,
                style=lane.style,
                y=LANE_HEIGHT * (place + 0.5) + 4,
                dots=tuple(map(x, lane.values)),
                low=x(min(lane.values)),
                high=x(max(lane.values)),
                middle=x(median(lane.values)),
            )
            for place, lane in enumerate(lanes)
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Spark:
    """A course without axes, from zero; its last point is marked."""

    width: int
    height: int
    label: str
    points: str
    last: tuple[float, float]


SPARK_WIDTH, SPARK_HEIGHT = 72, 20


def spark(values: Sequence[float], *, label: str) -> Spark:
    """Draw values in order; the base is zero, so that heights compare."""
    x = _scale(0, len(values) - 1, 2, SPARK_WIDTH - 4)
    y = _scale(min(0.0, *values), max(0.0, *values), SPARK_HEIGHT - 3, 3)
    dots = [(x(place), y(value)) for place, value in enumerate(values)]
    return Spark(width=SPARK_WIDTH, height=SPARK_HEIGHT, label=label, points=_path(dots), last=dots[-1])


def nice_ticks(low: float, high: float, *, about: int = 4) -> tuple[float, ...]:
    """Round values that enclose low to high."""
    if not high > low:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(index * step, 12) for index in range(first, last + 1))


def share(part: float, whole: float) -> float:
    """Part of a whole in per mille, for bars that stretch with their cell."""
    return round(1000 * min(max(part / whole, 0.0), 1.0), 1) if whole > 0 else 0.0


def _x_ticks(last: float) -> Iterable[float]:
    return [value for value in nice_ticks(0.0, last) if value <= last * 1.001]


def _line(name: str, style: str, points: Sequence[Point], x: Scale, y: Scale) -> Line:
    dots = tuple((x(point.x), y(point.y)) for point in points)
    above = [(x(point.x), y(point.high)) for point in points if point.high is not None]
    below = [(x(point.x), y(point.low)) for point in points if point.low is not None]
    is_exact = above == below
    return Line(
        name=name,
        style=style,
        points=_path(dots),
        dots=dots,
        band="" if is_exact else _path([*above, *reversed(below)]),
    )


def _path(dots: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in dots)


def _scale(low: float, high: float, start: float, end: float, *, slack: float = 0.0) -> Scale:
    room = (high - low) * slack
    low, high = low - room, high + room
    span = high - low

    def place(value: float) -> float:
        return round(start + (end - start) * ((value - low) / span if span else 0.5), 1)

    return place


def _mark(at: float, text: str, width: int) -> Mark:
    """Text beside an edge grows away from it."""
    anchor: Anchor = "start" if at < width * 0.18 else "end" if at > width * 0.82 else "middle"
    return Mark(at=at, text=text, anchor=anchor)
