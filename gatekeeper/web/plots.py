"""Geometry of the small charts: values in, coordinates out. Templates draw them as inline SVG: they need no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gatekeeper.web import axes
from gatekeeper.web.axes import Mark
from gatekeeper.web.badges import Tone


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
    x = axes.scale(min(shown), max(shown), FOREST_MARGIN, FOREST_WIDTH - FOREST_MARGIN, slack=0.06)
    at_limit = x(limit[0])
    is_exact = lower == upper == estimate
    return Forest(
        width=FOREST_WIDTH,
        height=FOREST_HEIGHT,
        label=label,
        tone=tone,
        zone_x=at_limit if holds_above else 0.0,
        zone_width=round(FOREST_WIDTH - at_limit if holds_above else at_limit, 1),
        limit=axes.mark(at_limit, limit[1], FOREST_WIDTH),
        neutral=axes.mark(x(neutral[0]), neutral[1], FOREST_WIDTH),
        low=x(estimate) if lower is None and upper is None else (0.0 if lower is None else x(lower)),
        high=x(estimate)
        if lower is None and upper is None
        else (FOREST_WIDTH if upper is None else x(upper)),
        is_open_low=lower is None and upper is not None,
        is_open_high=upper is None and lower is not None,
        dot=x(estimate),
        noise=x(noise) if noise is not None and not is_exact else None,
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
    ticks = axes.nice_ticks(0.0, highest)
    x = axes.scale(0.0, ticks[-1], STRIP_LEFT, STRIP_WIDTH - 4)
    bottom = LANE_HEIGHT * len(lanes) + 6
    return Strip(
        width=STRIP_WIDTH,
        height=bottom + 18,
        bottom=bottom,
        label=label,
        marks=tuple(axes.mark(x(value), f"{value:,.6g}", STRIP_WIDTH) for value in ticks),
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
    x = axes.scale(0, len(values) - 1, 2, SPARK_WIDTH - 4)
    y = axes.scale(min(0.0, *values), max(0.0, *values), SPARK_HEIGHT - 3, 3)
    dots = [(x(place), y(value)) for place, value in enumerate(values)]
    return Spark(width=SPARK_WIDTH, height=SPARK_HEIGHT, label=label, points=axes.path(dots), last=dots[-1])


def share(part: float, whole: float) -> float:
    """Part of a whole in per mille, for bars that stretch with their cell."""
    return round(1000 * min(max(part / whole, 0.0), 1.0), 1) if whole > 0 else 0.0
