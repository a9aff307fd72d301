"""From two measured arms to deltas: everything paired by item, one Delta per metric and mode."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.fidelity import TokenDeltas, TracesDiffer, compare_traces
from gatekeeper.domain.measurement import Measurement, Mode, TokenTrace
from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.verdict import CurvePoint, Delta
from gatekeeper.stats.binary import mcnemar_exact, paired_difference_interval
from gatekeeper.stats.continuous import mean_greater_p, mean_interval, mean_less_p
from gatekeeper.stats.interval import Interval
from gatekeeper.stats.power import (
    items_to_decide,
    items_to_decide_mean,
    smallest_detectable_drop,
    smallest_detectable_mean,
)
from gatekeeper.stats.ratio import log_ratio_greater_p, log_ratio_interval, log_ratio_less_p

FloatArray = NDArray[np.float64]
CURVE_POINTS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """How to estimate: the one-sided `confidence` of every bound, the rules' bounds by metric, and the noise of speed.

    `speed_noise`: by metric, the absolute log ratio that two launches of the same baseline showed; a speed metric that
    is not in it has unknown noise, and so no bounds.
    """

    confidence: float
    bounds: Mapping[str, float]
    speed_noise: Mapping[str, float]


def deltas_between(baseline: ArmRecord, candidate: ArmRecord, basis: Basis) -> tuple[Delta, ...]:
    """Every delta that the two arms support, by the candidate's modes; one the baseline lacks is held against cold."""
    return (
        *_token_deltas(baseline.traces, candidate.traces, basis),
        *_accuracy_deltas(baseline.measurements, candidate.measurements, basis),
        *_speed_deltas(baseline.measurements, candidate.measurements, basis),
        *_capacity_deltas(baseline, candidate, basis),
    )


# --- tokens ----------------------------------------------------------------------------------------------------------


def _token_deltas(
    baseline: Sequence[TokenTrace], candidate: Sequence[TokenTrace], basis: Basis
) -> Iterable[Delta]:
    references = {(trace.suite, trace.mode, trace.item_id): trace for trace in baseline}
    groups: dict[tuple[str, Mode], list[TokenTrace]] = defaultdict(list)
    for trace in candidate:
        groups[trace.suite, trace.mode].append(trace)
    for (suite, mode), traces in sorted(groups.items()):
        pairs = [(_reference(references, trace), trace) for trace in traces]
        scored = [(trace, _compare_or_none(reference, trace)) for reference, trace in pairs]
        usable = [(trace, deltas) for trace, deltas in scored if deltas is not None and _finite(deltas)]
        missing = len(scored) - len(usable)
        if len({trace.cluster for trace, _ in usable}) < 2:
            continue
        clusters = [trace.cluster for trace, _ in usable]
        for name, rows in _by_metric([deltas for _, deltas in usable]).items():
            yield _token_delta(METRICS[name], suite, mode, rows, clusters, missing, basis)


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


def _token_delta(
    metric: Metric,
    suite: str,
    mode: Mode,
    rows: Sequence[FloatArray],
    clusters: Sequence[str],
    missing: int,
    basis: Basis,
) -> Delta:
    values = np.array([row.mean() for row in rows])
    interval = mean_interval(values, clusters, confidence=basis.confidence)
    delta = _delta(
        metric, interval, suite=suite, mode=mode, n=len(rows), clusters=len(set(clusters)), missing=missing,
        method="mean over documents, skewness-corrected t", curve=_curve(rows),
    )  # fmt: skip
    bound = basis.bounds.get(metric.name)
    return (
        delta
        if bound is None
        else delta.model_copy(update=_against_bound(metric, values, clusters, bound, basis))
    )


def _against_bound(
    metric: Metric, values: FloatArray, clusters: Sequence[str], bound: float, basis: Basis
) -> dict[str, float | int | None]:
    """What the rule's bound adds to a mean: the test beyond it and the planning figures."""
    test = mean_less_p if metric.higher_is_better else mean_greater_p
    sign = -1.0 if metric.higher_is_better else 1.0
    planning = {"limit": sign * bound, "confidence": basis.confidence}
    return {
        "harm_p": test(values, clusters, threshold=bound),
        "more_items": items_to_decide_mean(sign * values, clusters, **planning),
        "detectable": sign * smallest_detectable_mean(sign * values, clusters, **planning),
    }


def _curve(rows: Sequence[FloatArray]) -> tuple[CurvePoint, ...]:
    """Means over equal stretches of the decode, up to the shortest item."""
    length = min(len(row) for row in rows)
    edges = np.linspace(0, length, min(CURVE_POINTS, length) + 1).astype(int)
    table = np.array([row[:length] for row in rows])
    return tuple(
        CurvePoint(start=int(start), end=int(end), estimate=float(table[:, start:end].mean()))
        for start, end in pairwise(edges)
    )


# --- accuracy --------------------------------------------------------------------------------------------------------


def _accuracy_deltas(
    baseline: Sequence[Measurement], candidate: Sequence[Measurement], basis: Basis
) -> Iterable[Delta]:
    reference = {(m.suite, m.item_id): m for m in baseline if m.metric == "correct"}
    groups: dict[tuple[str, Mode, str], list[tuple[Measurement | None, Measurement]]] = defaultdict(list)
    for measurement in candidate:
        if measurement.metric == "correct":
            pair = (reference.get((measurement.suite, measurement.item_id)), measurement)
            groups[measurement.suite, measurement.mode, "all"].append(pair)
            groups[measurement.suite, measurement.mode, measurement.cluster].append(pair)
    for (suite, mode, group), pairs in sorted(groups.items()):
        usable = [
            (first.value, second.value)
            for first, second in pairs
            if first is not None and first.value is not None and second.value is not None
        ]
        if usable:
            yield _accuracy_delta(usable, suite, mode, group, len(pairs) - len(usable), basis)


def _accuracy_delta(
    pairs: Sequence[tuple[float, float]], suite: str, mode: Mode, group: str, missing: int, basis: Basis
) -> Delta:
    lost = sum(first > second for first, second in pairs)
    gained = sum(first < second for first, second in pairs)
    interval = paired_difference_interval(lost=lost, gained=gained, n=len(pairs), confidence=basis.confidence)
    bound = basis.bounds.get("accuracy")
    counts = {"lost": lost, "gained": gained, "n": len(pairs)}
    drop = smallest_detectable_drop(
        n=len(pairs), flip_rate=(lost + gained) / len(pairs), alpha=1 - basis.confidence
    )
    more = None if bound is None else items_to_decide(**counts, margin=-bound, confidence=basis.confidence)
    return _delta(
        METRICS["accuracy"], interval, suite=suite, mode=mode, n=len(pairs), clusters=len(pairs), missing=missing,
        group=group, lost=lost, gained=gained, harm_p=mcnemar_exact(lost=lost, gained=gained),
        baseline=sum(first for first, _ in pairs) / len(pairs),
        candidate=sum(second for _, second in pairs) / len(pairs),
        more_items=more, detectable=None if drop is None else -drop,
        method="Tango score interval; exact McNemar",
    )  # fmt: skip


# --- speed and capacity ----------------------------------------------------------------------------------------------


def _speed_deltas(
    baseline: Sequence[Measurement], candidate: Sequence[Measurement], basis: Basis
) -> Iterable[Delta]:
    for metric in METRICS.values():
        if metric.kind != "speed":
            continue
        first, second = (_rounds(arm, metric.source) for arm in (baseline, candidate))
        for suite, mode in sorted(second.keys() & first.keys()):
            before, after = first[suite, mode], second[suite, mode]
            if min(len(before), len(after)) < 2 or min(*before, *after) <= 0:
                continue
            yield _speed_delta(metric, suite, mode, before, after, basis)


def _speed_delta(
    metric: Metric, suite: str, mode: Mode, before: Sequence[float], after: Sequence[float], basis: Basis
) -> Delta:
    """The ratio of the arms' rounds, its interval widened by the noise between launches.

    Rounds within one launch do not see what differs between launches (memory placement, page cache, clock), so their
    interval alone is too narrow. The ratio that the control launch showed is the measured size of that effect: it
    multiplies the bounds outward, and the harm must exceed the rule's bound by as much.
    """
    interval = log_ratio_interval(before, after, confidence=basis.confidence)
    noise, bound = basis.speed_noise.get(metric.name), basis.bounds.get(metric.name)
    factor = math.inf if noise is None else math.exp(noise)
    harm_p = None
    if bound is not None and noise is not None:
        test, beyond = (
            (log_ratio_less_p, bound / factor)
            if metric.higher_is_better
            else (log_ratio_greater_p, bound * factor)
        )
        harm_p = test(before, after, threshold=beyond)
    return _delta(
        metric,
        Interval(
            estimate=interval.estimate,
            lower=interval.lower / factor if noise is not None else -math.inf,
            upper=interval.upper * factor,
            confidence=interval.confidence,
        ),
        suite=suite, mode=mode, n=len(after), clusters=1, harm_p=harm_p,
        baseline=float(np.mean(before)), candidate=float(np.mean(after)),
        method="Welch t on log rounds of one launch per arm, widened by the control launch's ratio",
    )  # fmt: skip


def _rounds(measurements: Sequence[Measurement], metric: str) -> dict[tuple[str, Mode], list[float]]:
    rounds: dict[tuple[str, Mode], list[float]] = defaultdict(list)
    for measurement in measurements:
        if measurement.metric == metric and measurement.value is not None:
            rounds[measurement.suite, measurement.mode].append(measurement.value)
    return rounds


def _capacity_deltas(baseline: ArmRecord, candidate: ArmRecord, basis: Basis) -> Iterable[Delta]:
    first = baseline.effective.kv_cache_tokens if baseline.effective else None
    second = candidate.effective.kv_cache_tokens if candidate.effective else None
    if not first or not second:
        return
    ratio = second / first
    interval = Interval(estimate=ratio, lower=ratio, upper=ratio, confidence=basis.confidence)
    yield _delta(
        METRICS["kv_capacity_ratio"], interval, suite="capacity", mode="cold", n=1, clusters=1,
        baseline=first, candidate=second, method="exact: pool tokens that the engines report",
    )  # fmt: skip


def _delta(
    metric: Metric,
    interval: Interval,
    *,
    suite: str,
    mode: Mode,
    n: int,
    clusters: int,
    method: str,
    missing: int = 0,
    group: str = "all",
    baseline: float | None = None,
    candidate: float | None = None,
    lost: int | None = None,
    gained: int | None = None,
    harm_p: float | None = None,
    more_items: int | None = None,
    detectable: float | None = None,
    curve: tuple[CurvePoint, ...] = (),
) -> Delta:
    return Delta(
        metric=metric.name, unit=metric.unit, suite=suite, mode=mode, group=group, n=n, clusters=clusters,
        baseline=baseline, candidate=candidate, estimate=interval.estimate, lower=_bounded(interval.lower),
        upper=_bounded(interval.upper), confidence=interval.confidence, harm_p=harm_p, lost=lost, gained=gained,
        missing=missing, more_items=more_items, detectable=detectable, method=method, curve=curve,
    )  # fmt: skip


def _bounded(value: float) -> float | None:
    return value if math.isfinite(value) else None
