"""Samples of token metrics: two arms' traces of the same forced tokens, compared document by document."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.fidelity import TokenDeltas, TracesDiffer, compare_traces
from gatekeeper.domain.looks import Schedule, schedule_of
from gatekeeper.domain.measurement import Mode, TokenTrace
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.policy import ALL, context_group, positions_group
from gatekeeper.domain.sample import AtLength, FloatArray, MeanSample, Parts, Place, Stretch, Stretches
from gatekeeper.stats.sequential import FEWEST_DOCUMENTS

CURVE_POINTS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class _Item:
    """One document after one length of context. `deltas` None: not both arms have finite values of the same tokens."""

    item_id: str
    cluster: str
    context_tokens: int | None
    batch: int
    deltas: TokenDeltas | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pairing:
    """What two arms scored in one suite and mode, in order of measuring. `done`: as of a stop, in batches."""

    suite: str
    mode: Mode
    items: tuple[_Item, ...]
    done: int | None

    def within(self, start: int, end: int) -> _Pairing:
        """Only what has [start, end) tokens of context."""
        kept = (item for item in self.items if item.context_tokens and start <= item.context_tokens < end)
        return replace(self, items=tuple(kept))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scored:
    """Those items of a pairing that have a value, and the group that they make."""

    suite: str
    mode: Mode
    group: str
    items: tuple[_Item, ...]
    deltas: tuple[TokenDeltas, ...]
    missing: int
    schedule: Schedule

    @property
    def clusters(self) -> tuple[str, ...]:
        """The document of each item."""
        return tuple(item.cluster for item in self.items)

    @property
    def is_enough(self) -> bool:
        """A mean needs two documents, and a look that has been."""
        return len(set(self.clusters)) > 1 and bool(self.schedule.seen)

    def place(self, metric: str, group: str | None = None) -> Place:
        """What a sample of these items speaks of."""
        return Place(metric=METRICS[metric], suite=self.suite, mode=self.mode, group=group or self.group)


def token_samples(baseline: ArmRecord, candidate: ArmRecord, parts: Parts) -> Iterable[MeanSample]:
    """Every token metric over all that was scored, over stretches of the decode, and after some lengths of context."""
    groups: dict[tuple[str, Mode], list[TokenTrace]] = defaultdict(list)
    for trace in candidate.traces:
        groups[trace.suite, trace.mode].append(trace)
    for (suite, mode), traces in sorted(groups.items()):
        references = _references(baseline, suite, mode)
        against_baseline = _paired(references, traces, candidate, suite=suite, mode=mode)
        against_cold = _paired_with_cold(traces, candidate, suite=suite, mode=mode)
        yield from _of_tokens(_scored(against_baseline, ALL), parts.positions)
        yield from _context_drift(against_baseline)
        yield from _consistency(_scored(against_cold, ALL))
        for start, end in sorted(parts.contexts):
            group = context_group(start, end)
            yield from _of_tokens(_scored(against_baseline.within(start, end), group))
            yield from _consistency(_scored(against_cold.within(start, end), group))


def _references(baseline: ArmRecord, suite: str, mode: Mode) -> dict[str, TokenTrace]:
    """The baseline's traces by item: of the same mode or, where it has none of that, cold.

    Never of both: a mode may have fewer documents than the cold cache, and then the rest is not missing.
    """
    same, cold = (
        {t.item_id: t for t in baseline.traces if (t.suite, t.mode) == (suite, wanted)}
        for wanted in (mode, "cold")
    )
    return same or cold


def _paired(
    references: Mapping[str, TokenTrace],
    traces: Sequence[TokenTrace],
    candidate: ArmRecord,
    *,
    suite: str,
    mode: Mode,
) -> _Pairing:
    """Every item of either arm; the candidate says how long its context was, and the reference in which batch it is."""
    stop = candidate.stop_of(suite, mode)
    done = None if stop is None else stop.batches
    measured = {trace.item_id: trace for trace in traces}
    items = []
    for item_id in references.keys() | measured.keys():
        reference, trace = references.get(item_id), measured.get(item_id)
        known = trace or references[item_id]
        batch = reference.batch if reference else 0
        is_expected = done is None or batch < done
        items.append(
            _Item(
                item_id=item_id,
                cluster=known.cluster,
                context_tokens=known.context_tokens,
                batch=batch,
                deltas=_compare_or_none(reference, trace) if is_expected else None,
            )
        )
    ordered = sorted(items, key=lambda item: (item.batch, item.item_id))
    return _Pairing(suite=suite, mode=mode, items=tuple(ordered), done=done)


def _paired_with_cold(
    traces: Sequence[TokenTrace], candidate: ArmRecord, *, suite: str, mode: Mode
) -> _Pairing:
    """The candidate against its own cold cache, where it scored the same tokens in both states."""
    cold = {t.item_id: t for t in candidate.traces if (t.suite, t.mode) == (suite, "cold")}
    same = [t for t in traces if t.item_id in cold and tuple(cold[t.item_id].token_ids) == tuple(t.token_ids)]
    both = {} if mode == "cold" else {trace.item_id: cold[trace.item_id] for trace in same}
    return _paired(both, same if both else (), candidate, suite=suite, mode=mode)


def _scored(pairing: _Pairing, group: str) -> _Scored:
    done, planned = pairing.done, pairing.items
    usable = [(item, item.deltas) for item in planned if item.deltas is not None]
    lengths = math.ceil(len(planned) / max(len({item.cluster for item in planned}), 1))
    return _Scored(
        suite=pairing.suite,
        mode=pairing.mode,
        group=group,
        items=tuple(item for item, _ in usable),
        deltas=tuple(deltas for _, deltas in usable),
        missing=sum(done is None or item.batch < done for item in planned) - len(usable),
        schedule=schedule_of(
            (item.batch for item in planned),
            (item.batch for item, _ in usable),
            batches_done=done,
            fewest=FEWEST_DOCUMENTS * lengths,
        ),
    )


def _of_tokens(scored: _Scored, positions: Stretches = ()) -> Iterable[MeanSample]:
    """What the tokens came to, and for all of them together the stretches that every document reaches the end of."""
    if not scored.is_enough:
        return
    for metric, rows in _by_metric(scored.deltas).items():
        yield _sample(scored.place(metric), rows, scored, curve=_curve(rows) if scored.group == ALL else ())
        shortest = min(len(row) for row in rows)
        for start, end in sorted(positions):
            if end <= shortest:
                place = scored.place(metric, positions_group(start, end))
                yield _sample(place, [row[start:end] for row in rows], scored)
    yield _drift(scored)


def _drift(scored: _Scored) -> MeanSample:
    """Whether damage grows while the model decodes: KL of the later half of a document's tokens less the earlier's."""
    halves = [(kl[: len(kl) // 2], kl[len(kl) // 2 :]) for kl in (deltas.kl for deltas in scored.deltas)]
    drifts = [[later.mean() - earlier.mean() if len(earlier) else 0.0] for earlier, later in halves]
    return _sample(scored.place("kl_drift"), [np.array(drift) for drift in drifts], scored)


def _context_drift(pairing: _Pairing) -> Iterable[MeanSample]:
    """Whether damage grows with the context: a document's KL after the longest context less that after the shortest."""
    lengths = {item.context_tokens for item in pairing.items if item.context_tokens}
    if len(lengths) < 2:
        return
    shortest = {item.cluster: item.deltas for item in pairing.items if item.context_tokens == min(lengths)}
    longest = pairing.within(max(lengths), max(lengths) + 1).items
    both = (
        replace(item, deltas=item.deltas if shortest[item.cluster] is not None else None)
        for item in longest
        if item.cluster in shortest
    )
    scored = _scored(replace(pairing, items=tuple(both)), ALL)
    if scored.is_enough:
        before = [
            deltas.kl.mean() for cluster in scored.clusters if (deltas := shortest[cluster]) is not None
        ]
        rows = [deltas.kl - at_first for deltas, at_first in zip(scored.deltas, before, strict=True)]
        yield _sample(scored.place("kl_context_drift"), rows, scored)


def _consistency(scored: _Scored) -> Iterable[MeanSample]:
    """How far the candidate is from its own cold cache."""
    if scored.is_enough:
        yield _sample(scored.place("consistency_kl"), [deltas.kl for deltas in scored.deltas], scored)


def _sample(
    place: Place, rows: Sequence[FloatArray], scored: _Scored, curve: tuple[Stretch, ...] = ()
) -> MeanSample:
    values = np.array([row.mean() for row in rows])
    return MeanSample(
        place=place, values=values, clusters=scored.clusters, missing=scored.missing, schedule=scored.schedule,
        curve=curve, by_context=_by_context(scored.items, values) if place.group == ALL else (),
    )  # fmt: skip


def _by_context(items: Sequence[_Item], values: FloatArray) -> tuple[AtLength, ...]:
    """The documents that have a value after every length of context: what differs between lengths is the context."""
    table: dict[int, dict[str, float]] = defaultdict(dict)
    for item, value in zip(items, values, strict=True):
        if item.context_tokens is not None:
            table[item.context_tokens][item.cluster] = float(value)
    documents = tuple(sorted(set.intersection(*map(set, table.values())))) if table else ()
    if len(table) < 2 or len(documents) < 2:  # one length is no curve, and one document no mean
        return ()
    return tuple(
        AtLength(
            context_tokens=length,
            values=np.array([column[document] for document in documents]),
            clusters=documents,
        )
        for length, column in sorted(table.items())
    )


def _compare_or_none(baseline: TokenTrace | None, candidate: TokenTrace | None) -> TokenDeltas | None:
    if baseline is None or candidate is None:
        return None
    try:
        deltas = compare_traces(baseline, candidate)
    except TracesDiffer:
        return None
    return deltas if np.isfinite(deltas.kl).all() and np.isfinite(deltas.nll).all() else None


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
