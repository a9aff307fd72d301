"""Samples: what was seen of one metric in two arms, paired by item, in one mode and group of items."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gatekeeper.domain import speed
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.looks import Schedule
from gatekeeper.domain.measurement import Measurement, Mode
from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.policy import ALL

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Stretches: TypeAlias = Collection[tuple[int, int]]
"""Ranges [start, end) of tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What is estimated by itself too, besides tasks: stretches of the decode, and what has some length of context."""

    positions: Stretches = ()
    contexts: Stretches = ()


WHOLE = Parts()


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What a sample speaks of. `group`: all items, one task, one stretch of the decode, or some lengths of context."""

    metric: Metric
    suite: str
    mode: Mode
    group: str = ALL

    @property
    def key(self) -> tuple[str, Mode, str]:
        """What rules name it by."""
        return self.metric.name, self.mode, self.group


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Scored tokens start to end-1: the mean over all of them, and that of each document, shape (documents,)."""

    start: int
    end: int
    estimate: float
    values: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class AtLength:
    """What was scored after `context_tokens` tokens: one value per document, shape (documents,), and its name."""

    context_tokens: int
    values: FloatArray
    clusters: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanSample:
    """A continuous metric: one value per item, in the order of measuring, and the document that each belongs to.

    `curve`: along the decode. `by_context`: the same documents after contexts of several lengths, shortest first.
    """

    place: Place
    values: FloatArray
    clusters: tuple[str, ...]
    missing: int
    schedule: Schedule
    baseline: float | None = None
    candidate: float | None = None
    curve: tuple[Stretch, ...] = ()
    by_context: tuple[AtLength, ...] = ()


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
class TurnsSample:
    """A positive figure per round of two engines that took turns.

    `pairs`: by pair of launches, counted from 1, (figure of the baseline's companion, figure of the arm) of each round.
    """

    place: Place
    pairs: Mapping[int, Sequence[tuple[float, float]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactSample:
    """Two figures without error."""

    place: Place
    before: float
    after: float


Sample: TypeAlias = MeanSample | PairSample | RoundSample | TurnsSample | ExactSample


def round_samples(
    baseline: Sequence[Measurement], candidate: Sequence[Measurement]
) -> Iterable[RoundSample | TurnsSample]:
    """Speed: an arm that took turns is held against its companion; another against the baseline's own rounds."""
    in_turns = speed.took_turns(candidate)
    for metric in (metric for metric in METRICS.values() if metric.kind == "speed"):
        after = speed.rounds_of(candidate, metric.source)
        if in_turns:
            before = speed.rounds_of(candidate, metric.source, suite=speed.COMPANION)
        else:
            before = speed.rounds_of(baseline, metric.source)
        for mode, group in sorted(before.keys() & after.keys()):
            place = Place(metric=metric, suite=speed.SUITE, mode=mode, group=group)
            first, second = before[mode, group], after[mode, group]
            if in_turns:
                if pairs := speed.paired(first, second):
                    yield TurnsSample(place=place, pairs=pairs)
            elif min(len(first), len(second)) >= 2:
                yield RoundSample(place=place, before=tuple(first.values()), after=tuple(second.values()))


def capacity_samples(baseline: ArmRecord, candidate: ArmRecord) -> Iterable[ExactSample]:
    """The pools that both engines report."""
    before = baseline.effective.kv_cache_tokens if baseline.effective else None
    after = candidate.effective.kv_cache_tokens if candidate.effective else None
    if before and after:
        place = Place(metric=METRICS["kv_capacity_ratio"], suite="capacity", mode="cold")
        yield ExactSample(place=place, before=before, after=after)
