"""What all charts are drawn with: scales, round ticks, labels and lines, in the coordinates of an SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

Anchor = Literal["start", "middle", "end"]
Scale = Callable[[float], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A labelled place on an axis."""

    at: float
    text: str
    anchor: Anchor = "middle"


def nice_ticks(low: float, high: float, *, about: int = 4) -> tuple[float, ...]:
    """Round values that enclose low to high."""
    if not high > low:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(index * step, 12) for index in range(first, last + 1))


def scale(low: float, high: float, start: float, end: float, *, slack: float = 0.0) -> Scale:
    """From values of low to high to coordinates of start to end; `slack`: the share left free at both ends."""
    room = (high - low) * slack
    low, high = low - room, high + room
    span = high - low

    def place(value: float) -> float:
        return round(start + (end - start) * ((value - low) / span if span else 0.5), 1)

    return place


def mark(at: float, text: str, width: int) -> Mark:
    """A label in a drawing of this width; beside an edge its text grows away from it."""
    anchor: Anchor = "start" if at < width * 0.18 else "end" if at > width * 0.82 else "middle"
    return Mark(at=at, text=text, anchor=anchor)


def path(dots: Iterable[tuple[float, float]]) -> str:
    """Places as the `points` of an SVG line."""
    return " ".join(f"{x},{y}" for x, y in dots)
