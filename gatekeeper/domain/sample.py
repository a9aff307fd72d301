"""From two measured arms to samples: what was seen, paired by item, for each metric, mode and group of items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.fidelity import TokenDeltas, TracesDiffer, compare_traces
from gatekeeper.domain.measurement import Measurement, Mode, TokenTrace
from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.policy import ALL, positions_group
from gatekeeper.domain.verdict import CurvePoint

FloatArray = NDArray[np.float64]
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
    """A continuous metric: one value per item, shape (items,), and the document that each item belongs to."""

    place: Place
    values: FloatArray
    clusters: tuple[str, ...]
    missing: int
    baseline: float | None = None
    candidate: float | None = None
    curve: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSample:
    """Items right or wrong in each arm; `lost`: right under the baseline only, `gained`: under the candidate only."""

    place: Place
    both: int
    lost: int
    gained: int
    n: int
    missing: int

    @property
    def baseline(self) -> float:
        """The baseline's accuracy."""
        return (self.both + self.lost) / self.n

    @property
    def candidate(self) -> float:
        """The candidate's accuracy."""
        return (self.both + self.gained) / self.n


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


def samples_between(
    baseline: ArmRecord, candidate: ArmRecord, *, positions: Positions = ()
) -> tuple[Sample, ...]:
    """Every sample that the two arms support, by the candidate's modes; one the baseline lacks is held against cold."""
    before, after = baseline.measurements, candidate.measurements
    return (
        *_token_samples(baseline.traces, candidate.traces, positions),
        *_item_samples(METRICS["accuracy"], before, after),
        *_item_samples(METRICS["choice_probability"], before, after),
        *_round_samples(before, after),
        *_capacity_samples(baseline, candidate),
    )


def tasks_of(metric: Metric, *arms: ArmRecord) -> tuple[str, ...]:
    """The tasks whose items any of the arms has for this metric, sorted."""
    return tuple(sorted({m.cluster for arm in arms for m in arm.measurements if m.metric == metric.source}))


# --- tokens ----------------------------------------------------------------------------------------------------------


def _token_samples(
    baseline: Sequence[TokenTrace], candidate: Sequence[TokenTrace], positions: Positions
) -> Iterable[MeanSample]:
    references = {(trace.suite, trace.mode, trace.item_id): trace for trace in baseline}
    groups: dict[tuple[str, Mode], list[TokenTrace]] = defaultdict(list)
    for trace in candidate:
        groups[trace.suite, trace.mode].append(trace)
    for (suite, mode), traces in sorted(groups.items()):
        scored = [(trace, _compare_or_none(_reference(references, trace), trace)) for trace in traces]
        usable = [(trace, deltas) for trace, deltas in scored if deltas is not None and _finite(deltas)]
        clusters = tuple(trace.cluster for trace, _ in usable)
        expected = {t.item_id for t in baseline if t.suite == suite and t.mode in (mode, "cold")}
        missing = len(expected | {t.item_id for t in traces}) - len(usable)
        if len(set(clusters)) < 2:
            continue
        for name, rows in _by_metric([deltas for _, deltas in usable]).items():
            place = Place(metric=METRICS[name], suite=suite, mode=mode)
            yield MeanSample(
                place=place, values=_means(rows), clusters=clusters, missing=missing, curve=_curve(rows)
            )
            yield from _stretches(place, rows, clusters, missing, positions)


def _stretches(
    place: Place, rows: Sequence[FloatArray], clusters: tuple[str, ...], missing: int, positions: Positions
) -> Iterable[MeanSample]:
    """One sample per stretch that every item reaches the end of."""
    shortest = min(len(row) for row in rows)
    for start, end in sorted(positions):
        if end <= shortest:
            group = positions_group(start, end)
            part = Place(metric=place.metric, suite=place.suite, mode=place.mode, group=group)
            values = _means([row[start:end] for row in rows])
            yield MeanSample(place=part, values=values, clusters=clusters, missing=missing)


def _reference(
    references: Mapping[tuple[str, Mode, str], TokenTrace], trace: TokenTrace
) -> TokenTrace | None:
    same_mode = references.get((trace.suite, trace.mode, trace.item_id))
    return same_mode or references.get((trace.suite, "cold", trace.item_id))


def _compare_or_none(baseline: TokenTrace | None, candidate: TokenTrace) -> TokenDeltas | None:
    if baseline is None:
        return None
    try:
        return compare_traces(baseline, candidate)
    except TracesDiffer:
        return None


def _finite(deltas: TokenDeltas) -> bool:
    return bool(np.isfinite(deltas.kl).all() and np.isfinite(deltas.nll).all())


def _by_metric(deltas: Sequence[TokenDeltas]) -> dict[str, list[FloatArray]]:
    return {
        "decode_kl": [item.kl for item in deltas],
        "decode_nll": [item.nll for item in deltas],
        "top1_agreement": [item.agreement for item in deltas],
    }


def _means(rows: Sequence[FloatArray]) -> FloatArray:
    return np.array([row.mean() for row in rows])


def _curve(rows: Sequence[FloatArray]) -> tuple[CurvePoint, ...]:
    """Means over equal stretches of the decode, up to the shortest item."""
    length = min(len(row) for row in rows)
    edges = np.linspace(0, length, min(CURVE_POINTS, length) + 1).astype(int)
    table = np.array([row[:length] for row in rows])
    return tuple(
        CurvePoint(start=int(start), end=int(end), estimate=float(table[:, start:end].mean()))
        for start, end in pairwise(edges)
    )


# --- items -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _ItemPair:
    """An item's value in both arms; None: this arm has no finite value of it."""

    item_id: str
    before: float | None
    after: float | None


def _item_samples(
    metric: Metric, baseline: Sequence[Measurement], candidate: Sequence[Measurement]
) -> Iterable[MeanSample | PairSample]:
    """All items together, then each task by itself. An item that only one arm has is there, without a counterpart."""
    before = {(m.suite, m.item_id): m for m in baseline if m.metric == metric.source}
    after = {(m.suite, m.mode, m.item_id): m for m in candidate if m.metric == metric.source}
    lost = {
        (suite, mode, item): None
        for suite, mode in {key[:2] for key in after}
        for of_suite, item in before
        if of_suite == suite and (suite, mode, item) not in after
    }
    groups: dict[tuple[str, Mode, str], list[_ItemPair]] = defaultdict(list)
    for (suite, mode, item), m in sorted({**after, **lost}.items(), key=lambda entry: entry[0]):
        reference = before.get((suite, item))
        pair = _ItemPair(item_id=item, before=_value(reference), after=_value(m))
        for group in (ALL, *{known.cluster for known in (reference, m) if known is not None}):
            groups[suite, mode, group].append(pair)
    for suite, mode, group in sorted(groups, key=lambda key: (*key[:2], key[2] != ALL, key[2])):
        place = Place(metric=metric, suite=suite, mode=mode, group=group)
        yield from _item_sample(place, groups[suite, mode, group])


def _value(measurement: Measurement | None) -> float | None:
    return None if measurement is None else measurement.value


def _item_sample(place: Place, pairs: Sequence[_ItemPair]) -> Iterable[MeanSample | PairSample]:
    usable = [pair for pair in pairs if pair.before is not None and pair.after is not None]
    before = np.array([pair.before for pair in usable], dtype=np.float64)
    after = np.array([pair.after for pair in usable], dtype=np.float64)
    missing = len(pairs) - len(usable)
    if place.metric.kind == "binary" and usable:
        yield PairSample(
            place=place,
            both=int(((before > 0) & (after > 0)).sum()),
            lost=int((before > after).sum()),
            gained=int((before < after).sum()),
            n=len(usable),
            missing=missing,
        )
    if place.metric.kind == "score" and len(usable) > 1:
        yield MeanSample(
            place=place,
            values=after - before,
            clusters=tuple(pair.item_id for pair in usable),
            missing=missing,
            baseline=float(before.mean()),
            candidate=float(after.mean()),
        )


# --- speed and capacity ----------------------------------------------------------------------------------------------


def _round_samples(
    baseline: Sequence[Measurement], candidate: Sequence[Measurement]
) -> Iterable[RoundSample]:
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


def _capacity_samples(baseline: ArmRecord, candidate: ArmRecord) -> Iterable[ExactSample]:
    before = baseline.effective.kv_cache_tokens if baseline.effective else None
    after = candidate.effective.kv_cache_tokens if candidate.effective else None
    if before and after:
        place = Place(metric=METRICS["kv_capacity_ratio"], suite="capacity", mode="cold")
        yield ExactSample(place=place, before=before, after=after)
