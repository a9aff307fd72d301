"""The items of the bundled lm-eval tasks: which of them a probe takes, and in which batches."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from gatekeeper.domain.item_order import batch_ends, item_order
from gatekeeper.domain.probes import AccuracyProbe

BUNDLED_TASKS: Final = Path(__file__).parent / "tasks"
BUNDLED_NAMES: Final = frozenset(path.stem for path in BUNDLED_TASKS.glob("*.jsonl"))

Batch = Mapping[str, list[int]]
"""Task -> indices of its items, ascending as lm-eval needs them."""


@lru_cache
def bundled_items(task: str) -> tuple[Mapping[str, Any], ...]:
    """The items of a bundled task, none if it is not one."""
    path = BUNDLED_TASKS / f"{task}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return tuple(json.loads(line) for line in lines if line)


def all_bundled(probe: AccuracyProbe) -> bool:
    """True if every task of the probe comes with this package."""
    return all(bundled_items(task) for task in probe.tasks)


def batches(probe: AccuracyProbe) -> list[Batch]:
    """The probe's items, in batches, each task cut to `items_per_task`. Bundled tasks only.

    Both the cut and the batches follow `item_order`, so a smaller probe measures the first items of a larger one.
    """
    chosen = []
    for task in probe.tasks:
        keyed = [
            (item_order(f"{task}/{item['id']}", probe.seed), task, index)
            for index, item in enumerate(bundled_items(task))
        ]
        chosen += sorted(keyed)[: probe.items_per_task]
    chosen.sort()
    edges = (0, *batch_ends(len(chosen), probe.batches))
    return [_by_task(chosen[start:end]) for start, end in pairwise(edges)]


def _by_task(chosen: list[tuple[str, str, int]]) -> Batch:
    tasks: dict[str, list[int]] = defaultdict(list)
    for _, task, index in chosen:
        tasks[task].append(index)
    return {task: sorted(indices) for task, indices in sorted(tasks.items())}


def workload(taken: Sequence[Batch]) -> tuple[int, int]:
    """(items, requests) of batches: one request per choice."""
    choices = [
        len(bundled_items(task)[index]["choices"])
        for batch in taken
        for task, indices in batch.items()
        for index in indices
    ]
    return len(choices), sum(choices)
