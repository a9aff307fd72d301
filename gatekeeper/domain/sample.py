"""Samples: what was seen of one metric in two arms, paired by item, in one mode and group of items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.looks import Schedule
from gatekeeper.domain.measurement import Measurement, Mode
from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.policy import ALL
from gatekeeper.domain.verdict import CurvePoint

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Positions: TypeAlias = Collection[tuple[int, int]]
"""Stretches [start, end) of the decode that are estimated by themselves too."""
CURVE_POINTS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What a sample speaks of. `group`: all items, one task, or one stretch of the decode."""

    metric: Metric
    suite: str
    mode: Mode
    group: str = ALL

    @property
    def key(self) -> tuple[str, Mode, str]:
        """What rules name it by."""
        return self.metric.name, self.mode, self.group


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanSample:
    """A continuous metric: one value per item, in the order of measuring, and the document that each belongs to."""

    place: Place
    values: FloatArray
    clusters: tuple[str, ...]
    missing: int
    schedule: Schedule
    baseline: float | None = None
    candidate: float | None = None
    curve: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSample:
    """Items right (True) or wrong under the baseline and under the candidate, in the order of measuring; shape (n,)."""

    place: Place
    before: BoolArray
    after: BoolArray
    missing: int
    schedule: Schedule

    @property
    def n(self) -> int:
        """Items."""
        return self.before.size

    @property
    def both(self) -> int:
        """Items right in both arms."""
        return int((self.before & self.after).sum())

    def lost(self, first: int | None = None) -> int:
        """Of the first items, or of all: those right under the baseline only."""
        return int((self.before & ~self.after)[:first].sum())

    def gained(self, first: int | None = None) -> int:
        """Of the first items, or of all: those right under the candidate only."""
        return int((~self.before & self.after)[:first].sum())

    @property
    def baseline(self) -> float:
        """The baseline's accuracy."""
        return float(self.before.mean())

    @property
    def candidate(self) -> float:
        """The candidate's accuracy."""
        return float(self.after.mean())


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundSample:
    """A positive figure per round of each arm, unpaired."""

    place: Place
    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactSample:
    """Two figures without error."""

    place: Place
    before: float
    after: float


Sample: TypeAlias = MeanSample | PairSample | RoundSample | ExactSample


def round_samples(baseline: Sequence[Measurement], candidate: Sequence[Measurement]) -> Iterable[RoundSample]:
    """Speed: the figures of each arm's rounds, where both arms have two rounds or more."""
    for metric in METRICS.values():
        if metric.kind != "speed":
            continue
        first, second = (_rounds(arm, metric.source) for arm in (baseline, candidate))
        for suite, mode in sorted(second.keys() & first.keys()):
            before, after = first[suite, mode], second[suite, mode]
            if min(len(before), len(after)) >= 2 and min(*before, *after) > 0:
                place = Place(metric=metric, suite=suite, mode=mode)
                yield RoundSample(place=place, before=tuple(before), after=tuple(after))


def _rounds(measurements: Sequence[Measurement], metric: str) -> dict[tuple[str, Mode], list[float]]:
    rounds: dict[tuple[str, Mode], list[float]] = defaultdict(list)
    for measurement in measurements:
        if measurement.metric == metric and measurement.value is not None:
            rounds[measurement.suite, measurement.mode].append(measurement.value)
    return rounds


def capacity_samples(baseline: ArmRecord, candidate: ArmRecord) -> Iterable[ExactSample]:
    """The pools that both engines report."""
    before = baseline.effective.kv_cache_tokens if baseline.effective else None
    after = candidate.effective.kv_cache_tokens if candidate.effective else None
    if before and after:
        place = Place(metric=METRICS["kv_capacity_ratio"], suite="capacity", mode="cold")
        yield ExactSample(place=place, before=before, after=after)
