"""Do two outputs speak of the same items, asked in the same way? What differs is named and counted, never dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gatekeeper.domain.errors import FieldProblem
from gatekeeper.importing.outputs import Item, Output, TaskOutput

SAME_TASKS: Final = "the same tasks, or --task for those to compare"
SAME_ITEMS: Final = "the same items, or --common-items"
SAME_PROMPTS: Final = "the same few-shot examples and template"


def mismatches(baseline: Output, other: Output, *, field: str) -> list[FieldProblem]:
    """Why `other`, named `field`, cannot be paired with the baseline."""
    first, second = set(baseline.tasks), set(other.tasks)
    problems = [
        FieldProblem(field=field, problem=f"{problem}: {', '.join(sorted(tasks))}", allowed=SAME_TASKS)
        for problem, tasks in (
            ("lacks tasks of the baseline", first - second),
            ("has tasks that the baseline lacks", second - first),
        )
        if tasks
    ]
    for task in sorted(first & second):
        for problem, allowed in _task_mismatches(baseline.tasks[task], other.tasks[task]):
            problems.append(FieldProblem(field=field, problem=f"{task}: {problem}", allowed=allowed))
    return problems


def _task_mismatches(baseline: TaskOutput, other: TaskOutput) -> Iterator[tuple[str, str]]:
    """(problem, what would do instead)."""
    before, after = baseline.settings.compared, other.settings.compared
    for name in before if after else ():
        if before[name] != after.get(name):
            yield f"{name} is {after.get(name)!r:.80}", f"{before[name]!r:.80}, as in the baseline"
    if set(baseline.samples) != set(other.samples):
        yield f"its filters are {', '.join(other.samples)}", ", ".join(baseline.samples)
        return
    items = baseline.items
    lacking, added = len(items - other.items), len(other.items - items)
    if lacking or added:
        counts = [(f"{lacking} of the baseline's {len(items)} items are missing", lacking)]
        counts.append((f"{added} items are not in the baseline", added))
        yield ", ".join(text for text, count in counts if count), SAME_ITEMS
    for name, hashes in (("prompts", "prompt_hash"), ("right answers", "target_hash")):
        changed = _count_changed(baseline.samples, other.samples, hashes)
        if changed:
            common = len(items & other.items)
            yield (
                f"{changed} of {common} items have other {name} ({hashes})",
                SAME_PROMPTS,
            )


def _count_changed(
    baseline: Mapping[str, Mapping[Item, object]], other: Mapping[str, Mapping[Item, object]], name: str
) -> int:
    """How many items that both have differ in an attribute of any of their samples."""
    changed = {
        item
        for filter_name, samples in baseline.items()
        for item, sample in samples.items()
        if item in other[filter_name] and getattr(sample, name) != getattr(other[filter_name][item], name)
    }
    return len(changed)


def common_items(outputs: Sequence[Output]) -> tuple[list[Output], list[str]]:
    """The outputs, of which all have the same tasks, cut to the items that all have; and what was left out, counted."""
    notes, cut = [], [dict(output.tasks) for output in outputs]
    for task in outputs[0].tasks:
        present = [output.tasks[task].items for output in outputs]
        shared = frozenset.intersection(*present)
        left_out = len(frozenset.union(*present) - shared)
        if left_out:
            notes.append(
                f"{task}: {left_out} items that not every output has were left out (--common-items)."
            )
            for tasks in cut:
                tasks[task] = tasks[task].only(shared)
    return [replace(output, tasks=tasks) for output, tasks in zip(outputs, cut, strict=True)], notes
