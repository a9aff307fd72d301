"""Samples of items: what each was worth in both arms, all together and task by task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.looks import schedule_of
from gatekeeper.domain.measurement import Measurement, Mode
from gatekeeper.domain.metric import Metric
from gatekeeper.domain.policy import ALL, context_group
from gatekeeper.domain.sample import MeanSample, PairSample, Place, Stretches
from gatekeeper.domain.stretch import stretch_of
from gatekeeper.stats.sequential import FEWEST_DOCUMENTS


@dataclass(frozen=True, kw_only=True, slots=True)
class _Item:
    """An item's value in both arms; None: this arm has no finite value of it."""

    item_id: str
    tasks: frozenset[str]
    context_tokens: int | None
    batch: int
    before: float | None
    after: float | None

    @property
    def is_usable(self) -> bool:
        """True if both arms have a value."""
        return self.before is not None and self.after is not None


def item_samples(
    metric: Metric, baseline: ArmRecord, candidate: ArmRecord, contexts: Stretches = ()
) -> Iterable[MeanSample | PairSample]:
    """All items together, each task by itself, those of some context lengths, then every stretch of their decode.

    An item that only one arm has is there, without a counterpart.
    """
    for suite, mode, items, done in _measured(metric.source, baseline, candidate):
        for group, members in _groups(items, contexts):
            yield from _sample(Place(metric=metric, suite=suite, mode=mode, group=group), members, done)
    for source, stretch in _stretches(metric, candidate):
        for suite, mode, items, done in _measured(source, baseline, candidate):
            yield from _sample(Place(metric=metric, suite=suite, mode=mode, group=stretch), items, done)


def _measured(
    source: str, baseline: ArmRecord, candidate: ArmRecord
) -> Iterable[tuple[str, Mode, list[_Item], int | None]]:
    """A figure by suite and mode: what every item was worth, and how many batches were done where a run stopped."""
    before: dict[str, dict[str, Measurement]] = defaultdict(dict)
    for measurement in baseline.measurements:
        if measurement.metric == source:
            before[measurement.suite][measurement.item_id] = measurement
    after: dict[tuple[str, Mode], dict[str, Measurement]] = defaultdict(dict)
    for measurement in candidate.measurements:
        if measurement.metric == source:
            after[measurement.suite, measurement.mode][measurement.item_id] = measurement
    for suite, mode in sorted(after):
        stop = candidate.stop_of(suite, mode)
        yield suite, mode, _paired(before[suite], after[suite, mode]), None if stop is None else stop.batches


def _stretches(metric: Metric, arm: ArmRecord) -> list[tuple[str, str]]:
    """(figure, group) of every stretch of the decode that the metric was measured in, the earliest first."""
    figures = {measurement.metric for measurement in arm.measurements}
    named = [(figure, group) for figure in figures if (group := stretch_of(figure, metric.source))]
    return sorted(named, key=lambda entry: (len(entry[1]), entry[1]))  # numbers of more digits are larger


def _groups(items: Sequence[_Item], contexts: Stretches) -> Iterable[tuple[str, list[_Item]]]:
    yield ALL, list(items)
    for task in sorted({task for item in items for task in item.tasks} - {ALL}):  # never in place of all
        yield task, [item for item in items if task in item.tasks]
    for start, end in sorted(contexts):
        within = [item for item in items if item.context_tokens and start <= item.context_tokens < end]
        if within:
            yield context_group(start, end), within


def tasks_of(metric: Metric, *arms: ArmRecord) -> tuple[str, ...]:
    """The tasks whose items any of the arms has for this metric, sorted."""
    return tuple(sorted({m.cluster for arm in arms for m in arm.measurements if m.metric == metric.source}))


def _paired(before: Mapping[str, Measurement], after: Mapping[str, Measurement]) -> list[_Item]:
    """Every item of either arm, in the order of measuring: the baseline's batches."""
    items = []
    for item_id in before.keys() | after.keys():
        reference, measured = before.get(item_id), after.get(item_id)
        known = [entry for entry in (reference, measured) if entry is not None]
        items.append(
            _Item(
                item_id=item_id,
                tasks=frozenset(entry.cluster for entry in known),
                context_tokens=known[0].context_tokens,
                batch=0 if reference is None else reference.batch,
                before=None if reference is None else reference.value,
                after=None if measured is None else measured.value,
            )
        )
    return sorted(items, key=lambda item: (item.batch, item.item_id))


def _sample(
    place: Place, items: Sequence[_Item], batches_done: int | None
) -> Iterable[MeanSample | PairSample]:
    expected = [item for item in items if batches_done is None or item.batch < batches_done]
    usable = [item for item in expected if item.is_usable]
    is_binary = place.metric.kind == "binary"
    schedule = schedule_of(
        (item.batch for item in items), (item.batch for item in usable),
        batches_done=batches_done, fewest=1 if is_binary else FEWEST_DOCUMENTS,
    )  # fmt: skip
    if not schedule.seen:
        return
    before = np.array([item.before for item in usable], dtype=np.float64)
    after = np.array([item.after for item in usable], dtype=np.float64)
    missing = len(expected) - len(usable)
    if is_binary and usable:
        yield PairSample(place=place, before=before > 0, after=after > 0, missing=missing, schedule=schedule)
    if not is_binary and len(usable) > 1:
        yield MeanSample(
            place=place, values=after - before, clusters=tuple(item.item_id for item in usable),
            missing=missing, schedule=schedule, baseline=float(before.mean()), candidate=float(after.mean()),
        )  # fmt: skip
