"""Which of several candidates are worth having: those that no other beats in everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """What one candidate costs. `costs`: name -> figure, smaller is better; NaN never gets in."""

    name: str
    costs: Mapping[str, float] = field(default_factory=dict)


def pareto_front(points: Sequence[Point]) -> frozenset[str]:
    """The names of the points that no other point dominates.

    Compared is what all points have; nothing to compare: no front. Equal points are all on it.
    """
    shared = set.intersection(*(set(point.costs) for point in points)) if points else set()
    if not shared:
        return frozenset()
    return frozenset(
        point.name for point in points if not any(_dominates(other, point, shared) for other in points)
    )


def _dominates(other: Point, point: Point, names: set[str]) -> bool:
    """True if `other` is nowhere worse and somewhere better."""
    pairs = [(other.costs[name], point.costs[name]) for name in names]
    return all(mine <= theirs for mine, theirs in pairs) and any(mine < theirs for mine, theirs in pairs)
