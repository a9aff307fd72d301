"""Which of the figures that lm-eval logged per item can be judged, and which speaks for its task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.importing.lm_eval import CHOICE_PROBABILITY, NO_FILTER, Sample
from gatekeeper.importing.outputs import Output

PREFERRED: Final = ("acc", "exact_match", "prompt_level_strict_acc")
"""Which right-or-wrong metric speaks for a task that logs several; else the first that it logs."""
KNOWN_HIGHER: Final = frozenset((*PREFERRED, "acc_norm", "prompt_level_loose_acc", "em", "pass@1"))
"""Metrics that need no results file to say that higher is better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One metric of one task under one filter, right or wrong for every item."""

    task: str
    metric: str
    filter: str
    higher_is_better: bool

    @property
    def label(self) -> str:
        """The metric as lm-eval writes it: `acc`, or `exact_match,strict-match`."""
        return label(self.metric, self.filter)

    def correct(self, sample: Sample) -> float:
        """1 or 0; NaN where lm-eval logged that."""
        value = sample.values[self.metric]
        assert value is not None  # `_series` looked
        return value if self.higher_is_better else 1.0 - value


@dataclass(frozen=True, kw_only=True, slots=True)
class NotJudged:
    """A logged figure that no rule can speak of, and why."""

    task: str
    metric: str
    reason: str

    def __str__(self) -> str:
        return f"{self.metric} of {self.task}: {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """`judged`: by task. `shown`: right or wrong as well, but a task's items may count only once.

    `with_probability`: the tasks whose items all have a probability of the right choice.
    """

    judged: dict[str, Series]
    shown: tuple[Series, ...]
    with_probability: frozenset[str]
    not_judged: tuple[NotJudged, ...]


def label(metric: str, filter_name: str) -> str:
    """A metric and its filter in lm-eval's notation."""
    return metric if filter_name == NO_FILTER else f"{metric},{filter_name}"


def choose(outputs: Sequence[Output], *, preferred: Sequence[str] = ()) -> Chosen:
    """Sort the logged figures. `preferred`: metrics, with or without filter, that speak for the tasks that have them.

    Raises InvalidInput for a preferred one that no task has.
    """
    judged, shown, not_judged = {}, list[Series](), list[NotJudged]()
    for task in outputs[0].tasks:
        fit = list[Series]()
        for metric, filter_name in _logged(outputs, task):
            found = _series(outputs, task, metric, filter_name)
            if isinstance(found, Series):
                fit.append(found)
            else:
                not_judged.append(NotJudged(task=task, metric=label(metric, filter_name), reason=found))
        ranking = (*preferred, *PREFERRED)
        fit.sort(key=lambda series: _rank(series, ranking))  # stable: else as logged
        if fit:
            judged[task] = fit[0]
            shown += fit[1:]
    _refuse_unknown(preferred, [*judged.values(), *shown])
    unknown = {task: _unknown_probabilities(outputs, series) for task, series in judged.items()}
    not_judged += [
        NotJudged(task=task, metric=CHOICE_PROBABILITY, reason=f"{count} of {total} samples have none")
        for task, (count, total) in unknown.items()
        if 0 < count < total
    ]
    return Chosen(
        judged=judged,
        shown=tuple(shown),
        with_probability=frozenset(task for task, (count, _) in unknown.items() if not count),
        not_judged=tuple(not_judged),
    )


def _rank(series: Series, ranking: Sequence[str]) -> int:
    return next((i for i, name in enumerate(ranking) if name in (series.metric, series.label)), len(ranking))


def _refuse_unknown(preferred: Sequence[str], fit: Sequence[Series]) -> None:
    known = {name for series in fit for name in (series.metric, series.label)}
    problems = [
        FieldProblem(
            field="metric",
            problem=f"no task has a right-or-wrong metric {name!r}",
            allowed=", ".join(sorted(known)),
        )
        for name in preferred
        if name not in known
    ]
    if problems:
        raise InvalidInput(problems)


def _logged(outputs: Sequence[Output], task: str) -> list[tuple[str, str]]:
    """Every (metric, filter) that an output logged for a task, in the order of the files."""
    names = [
        (metric, filter_name)
        for output in outputs
        for filter_name, samples in output.tasks[task].samples.items()
        for sample in samples.values()
        for metric in sample.values
    ]
    return list(dict.fromkeys(names))


def _series(outputs: Sequence[Output], task: str, metric: str, filter_name: str) -> Series | str:
    """The series, or why it is none."""
    samples = [sample for output in outputs for sample in output.tasks[task].samples[filter_name].values()]
    if any(metric not in sample.values for sample in samples):
        return "it is not logged for every item"
    values = [sample.values[metric] for sample in samples]
    if None in values:
        return "it is not one number per item"
    if any(value not in (0.0, 1.0) for value in values if value is not None and math.isfinite(value)):
        return "it is not right or wrong per item, and no rule speaks of it"
    said = [output.tasks[task].settings.higher_is_better.get(metric) for output in outputs]
    higher = next((answer for answer in said if answer is not None), True if metric in KNOWN_HIGHER else None)
    if higher is None:
        return "lm-eval does not say whether higher is better"
    return Series(task=task, metric=metric, filter=filter_name, higher_is_better=higher)


def _unknown_probabilities(outputs: Sequence[Output], series: Series) -> tuple[int, int]:
    """How many samples, and of how many, have no probability of the right choice."""
    samples = [
        sample for output in outputs for sample in output.tasks[series.task].samples[series.filter].values()
    ]
    return sum(sample.right_choice_probability is None for sample in samples), len(samples)
