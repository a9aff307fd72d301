"""Samples of token metrics: two arms' traces of the same forced tokens, compared document by document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.fidelity import TokenDeltas, TracesDiffer, compare_traces
from gatekeeper.domain.looks import Schedule, schedule_of
from gatekeeper.domain.measurement import Mode, TokenTrace
from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.policy import positions_group
from gatekeeper.domain.sample import FloatArray, MeanSample, Place, Stretch, Stretches
from gatekeeper.stats.sequential import FEWEST_DOCUMENTS

CURVE_POINTS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scored:
    """One suite's documents in one mode, those with a value in order of measuring."""

    suite: str
    mode: Mode
    clusters: tuple[str, ...]
    deltas: tuple[TokenDeltas, ...]
    missing: int
    schedule: Schedule

    @property
    def is_enough(self) -> bool:
        """A mean needs two documents, and a look that has been."""
        return len(set(self.clusters)) > 1 and bool(self.schedule.seen)


def token_samples(baseline: ArmRecord, candidate: ArmRecord, positions: Stretches) -> Iterable[MeanSample]:
    """Every token metric over whole documents, and over the stretches of the decode that rules speak of."""
    groups: dict[tuple[str, Mode], list[TokenTrace]] = defaultdict(list)
    for trace in candidate.traces:
        groups[trace.suite, trace.mode].append(trace)
    for (suite, mode), traces in sorted(groups.items()):
        scored = _scored(_references(baseline, suite, mode), traces, candidate, suite=suite, mode=mode)
        if scored.is_enough:
            for name, rows in _by_metric(scored.deltas).items():
                yield from _of_metric(METRICS[name], rows, scored, positions)
            yield _drift(scored)
        if mode != "cold":
            yield from _consistency(traces, candidate, suite=suite, mode=mode)


def _references(baseline: ArmRecord, suite: str, mode: Mode) -> dict[str, TokenTrace]:
    """The baseline's traces by item: of the same mode or, where it has none of that, cold.

    Never of both: a mode may have fewer documents than the cold cache, and then the rest is not missing.
    """
    same, cold = (
        {t.item_id: t for t in baseline.traces if (t.suite, t.mode) == (suite, wanted)}
        for wanted in (mode, "cold")
    )
    return same or cold


def _scored(
    references: Mapping[str, TokenTrace],
    traces: Sequence[TokenTrace],
    candidate: ArmRecord,
    *,
    suite: str,
    mode: Mode,
) -> _Scored:
    stop = candidate.stop_of(suite, mode)
    done = None if stop is None else stop.batches
    planned = {item: trace.batch for item, trace in references.items()}
    wanted = [trace for trace in traces if done is None or planned.get(trace.item_id, 0) < done]
    ordered = sorted(wanted, key=lambda trace: (planned.get(trace.item_id, 0), trace.item_id))
    compared = [(trace, _compare_or_none(references.get(trace.item_id), trace)) for trace in ordered]
    usable = [(trace, deltas) for trace, deltas in compared if deltas is not None and _finite(deltas)]
    expected = {item for item, batch in planned.items() if done is None or batch < done}
    return _Scored(
        suite=suite,
        mode=mode,
        clusters=tuple(trace.cluster for trace, _ in usable),
        deltas=tuple(deltas for _, deltas in usable),
        missing=len(expected | {trace.item_id for trace in wanted}) - len(usable),
        schedule=schedule_of(
            planned.values(),
            (planned[trace.item_id] for trace, _ in usable),
            batches_done=done,
            fewest=FEWEST_DOCUMENTS,
        ),
    )


def _of_metric(
    metric: Metric, rows: Sequence[FloatArray], scored: _Scored, positions: Stretches
) -> Iterable[MeanSample]:
    """All decoded tokens, then one sample per stretch that every document reaches the end of."""
    place = Place(metric=metric, suite=scored.suite, mode=scored.mode)
    yield _sample(place, rows, scored, curve=_curve(rows))
    shortest = min(len(row) for row in rows)
    for start, end in sorted(positions):
        if end <= shortest:
            group = positions_group(start, end)
            part = Place(metric=metric, suite=scored.suite, mode=scored.mode, group=group)
            yield _sample(part, [row[start:end] for row in rows], scored)


def _drift(scored: _Scored) -> MeanSample:
    """Whether damage grows while the model decodes: KL of the later half of a document's tokens less the earlier's."""
    halves = [(kl[: len(kl) // 2], kl[len(kl) // 2 :]) for kl in (deltas.kl for deltas in scored.deltas)]
    drifts = [[later.mean() - earlier.mean() if len(earlier) else 0.0] for earlier, later in halves]
    place = Place(metric=METRICS["kl_drift"], suite=scored.suite, mode=scored.mode)
    return _sample(place, [np.array(drift) for drift in drifts], scored)


def _consistency(
    traces: Sequence[TokenTrace], candidate: ArmRecord, *, suite: str, mode: Mode
) -> Iterable[MeanSample]:
    """How far the candidate is from its own cold cache, where it scored the same tokens in both states."""
    cold = {t.item_id: t for t in candidate.traces if (t.suite, t.mode) == (suite, "cold")}
    same = [t for t in traces if t.item_id in cold and tuple(cold[t.item_id].token_ids) == tuple(t.token_ids)]
    both = {trace.item_id: cold[trace.item_id] for trace in same}
    if not both:
        return
    scored = _scored(both, same, candidate, suite=suite, mode=mode)
    if scored.is_enough:
        place = Place(metric=METRICS["consistency_kl"], suite=suite, mode=mode)
        yield _sample(place, [deltas.kl for deltas in scored.deltas], scored)


def _sample(
    place: Place, rows: Sequence[FloatArray], scored: _Scored, curve: tuple[Stretch, ...] = ()
) -> MeanSample:
    return MeanSample(
        place=place, values=np.array([row.mean() for row in rows]), clusters=scored.clusters,
        missing=scored.missing, schedule=scored.schedule, curve=curve,
    )  # fmt: skip


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
        "rank_shift": [item.rank_shift for item in deltas],
    }


def _curve(rows: Sequence[FloatArray]) -> tuple[Stretch, ...]:
    """Means over equal stretches of the decode, up to the shortest item."""
    length = min(len(row) for row in rows)
    edges = np.linspace(0, length, min(CURVE_POINTS, length) + 1).astype(int)
    table = np.array([row[:length] for row in rows])
    return tuple(
        Stretch(start=int(start), end=int(end), estimate=float(part.mean()), values=part.mean(axis=1))
        for start, end in pairwise(edges)
        for part in (table[:, start:end],)
    )
