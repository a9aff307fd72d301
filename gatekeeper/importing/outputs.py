"""One lm-eval output directory, read whole: its tasks, and their items keyed so that they can be paired."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput
from gatekeeper.domain.policy import check_task_names
from gatekeeper.domain.text import storable
from gatekeeper.importing.lm_eval import (
    Sample,
    SampleFile,
    TaskSettings,
    list_sample_files,
    read_samples,
    read_settings,
)

Item: TypeAlias = tuple[str, int]
"""The hash of a document, and which of the equal documents of its task it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskOutput:
    """One task: by filter, in the order of the file, the samples by item."""

    settings: TaskSettings
    samples: Mapping[str, Mapping[Item, Sample]]

    @property
    def items(self) -> frozenset[Item]:
        """The items of all filters."""
        return frozenset(item for samples in self.samples.values() for item in samples)

    def only(self, items: Collection[Item]) -> TaskOutput:
        """The same without other items."""
        kept = {
            name: {item: sample for item, sample in samples.items() if item in items}
            for name, samples in self.samples.items()
        }
        return replace(self, samples=kept)


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """The newest samples of every task of one arm. `model`: as lm-eval names it, None where it does not."""

    path: Path
    model: str | None
    tasks: Mapping[str, TaskOutput]

    @property
    def shown_path(self) -> str:
        """The path as text, which a directory's name need not be."""
        return storable(str(self.path))

    @property
    def shown_name(self) -> str:
        """The directory's own name as text."""
        return storable(self.path.name) or self.shown_path


def read_output(path: Path, *, field: str, tasks: Collection[str] = ()) -> Output:
    """Read an output directory, or just `tasks` of it. Raises InvalidInput naming `field`, and UnreadableInput."""
    files = list_sample_files(path)
    if not files:
        problem = f"{path} holds no samples_<task>_<time>.jsonl"
        allowed = "an output directory of `lm_eval run --log_samples`"
        raise InvalidInput([FieldProblem(field=field, problem=problem, allowed=allowed)])
    absent = [task for task in tasks if task not in files]
    if absent:
        problem = f"{path} has no {', '.join(absent)}"
        raise InvalidInput([FieldProblem(field=field, problem=problem, allowed=", ".join(sorted(files)))])
    chosen = [task for task in files if task in tasks or not tasks]
    try:
        check_task_names(chosen)
    except ValueError as error:
        raise InvalidInput([FieldProblem(field=field, problem=str(error), allowed="--task")]) from error
    read = {task: _read_task(file) for task, file in sorted(files.items()) if task in chosen}
    models = sorted({task.settings.model for task in read.values() if task.settings.model})
    if len(models) > 1:
        problem = f"the newest samples in {path} are of several models: {', '.join(models)}"
        raise InvalidInput([FieldProblem(field=field, problem=problem, allowed="one model, or --task")])
    return Output(path=path, model=models[0] if models else None, tasks=read)


def _read_task(file: SampleFile) -> TaskOutput:
    samples: dict[str, dict[Item, Sample]] = defaultdict(dict)
    seen: Counter[tuple[str, str]] = Counter()
    for sample in read_samples(file):
        key = sample.filter, sample.doc_hash
        samples[sample.filter][sample.doc_hash, seen[key]] = sample
        seen[key] += 1
    if not samples:
        raise UnreadableInput(f"{file.path} holds no samples")
    return TaskOutput(settings=read_settings(file), samples=dict(samples))
