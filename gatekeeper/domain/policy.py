"""A policy: the rules that a change must pass, each with its scope, its limit and its reason."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from gatekeeper.domain.base import Closed, NonNegativeInt, PositiveInt
from gatekeeper.domain.change import Name
from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.metric import METRICS, LimitForm

Severity = Literal["block", "warn"]

LIMIT_FORMS: Final[tuple[LimitForm, ...]] = (
    "max_drop",
    "at_least_of_baseline",
    "at_most",
    "at_most_noise_multiple",
    "at_least",
)
ALL, EACH, WORST = "all", "each", "worst"
"""The groups that are not the name of a task; no task may be called so."""


def check_task_names(names: Iterable[str]) -> None:
    """Raises ValueError where a task has the name of such a group: its items would stand for those of all tasks."""
    if taken := sorted({ALL, EACH, WORST}.intersection(names)):
        raise ValueError(f"no task may be called {' or '.join(taken)}: rules name groups of tasks so")


def positions_group(start: int, end: int) -> str:
    """The group of a delta that speaks of decoded tokens `start` to `end` - 1 alone."""
    return f"tokens {start}-{end}"


def context_group(start: int, end: int) -> str:
    """The group of a delta that speaks of `start` to `end` - 1 tokens of context, or of items so long, alone."""
    return f"context {start}-{end}"


def load_group(input_tokens: int) -> str:
    """The group of a delta that speaks of requests with prompts of that length alone."""
    return f"{input_tokens} tokens in"


class Rule(Closed):
    """One line of a policy: a metric, exactly one limit, where it applies, and why."""

    metric: Annotated[
        str,
        Field(description="What is judged.", json_schema_extra={"enum": list(METRICS)}),
    ]
    max_drop: Annotated[
        float | None,
        Field(
            ge=0, le=1, description="The metric may fall by less than this share: 0.02 means two points. A drop that "
            "is shown to be real and not shown to be smaller fails.",
        ),
    ] = None  # fmt: skip
    at_least_of_baseline: Annotated[
        float | None,
        Field(
            gt=0, le=1, description="The candidate must keep more than this share of the baseline's accuracy: 0.99 is "
            "MLPerf's form. Both arms' accuracies are estimated, paired by item.",
        ),
    ] = None  # fmt: skip
    at_most: Annotated[
        float | None,
        Field(description="The estimate must stay at or below this, in the metric's unit."),
    ] = None
    at_most_noise_multiple: Annotated[
        float | None,
        Field(
            gt=0, description="The estimate must stay at or below this many times what two launches of the baseline "
            "differ by. Needs `limit_floor`.",
        ),
    ] = None  # fmt: skip
    limit_floor: Annotated[
        float | None,
        Field(
            gt=0, description="With `at_most_noise_multiple`: the limit is never below this, in the metric's unit, so "
            "that a setup without noise does not fail every change.",
        ),
    ] = None  # fmt: skip
    at_least: Annotated[
        float | None,
        Field(
            description="The estimate must reach this, in the metric's unit. On kv_capacity_ratio or a speed ratio, a "
            "value above 1 demands a gain.",
        ),
    ] = None  # fmt: skip
    group: Annotated[
        Name,
        Field(
            description="Accuracy metrics: `all` items together, `each` task by itself, the `worst` task, or the name "
            "of one task.",
            examples=[ALL, EACH, WORST, "gk_recall"],
        ),
    ] = ALL  # fmt: skip
    mode: Annotated[
        Mode | None,
        Field(
            description="Token metrics: only in this state of the prefix cache. Absent: in every state that the "
            "candidate has. Speed metrics: `warm` speaks of prompts that share a prefix, absent or `cold` of others."
        ),
    ] = None  # fmt: skip
    decode_position: Annotated[
        tuple[NonNegativeInt, PositiveInt] | None,
        Field(
            description="Token metrics: only decoded tokens [start, end), counted from 0; [64, 128] are the second 64."
        ),
    ] = None
    context: Annotated[
        tuple[NonNegativeInt, PositiveInt] | None,
        Field(
            description="Retrieval metrics: only items whose whole sequence has [start, end) tokens; [900, 2000] are "
            "those of about 1,024. Token metrics: only what was scored after [start, end) tokens of context."
        ),
    ] = None
    input_tokens: Annotated[
        PositiveInt | None,
        Field(
            description="Speed metrics: only requests with prompts of this length, where the suite has several. "
            "Absent: all lengths together."
        ),
    ] = None
    severity: Annotated[Severity, Field(description="`warn` reports the rule but never closes the gate.")] = (
        "block"
    )
    reason: Annotated[
        str, Field(min_length=1, description="Why this limit and no other. Shown beside the result.")
    ]

    @field_validator(*LIMIT_FORMS, "limit_floor", mode="before")
    @classmethod
    def _yes_is_no_number(cls, value: object) -> object:
        """YAML reads `yes` and `true` as a truth value, which would count as 1: the widest of limits."""
        if isinstance(value, bool):
            raise ValueError(f"a limit is a number, not {str(value).lower()}")  # noqa: TRY004 - pydantic wants it
        return value

    @model_validator(mode="after")
    def _limit_fits_metric(self) -> Self:
        if self.metric not in METRICS:
            raise ValueError(f"unknown metric {self.metric!r}; allowed: {', '.join(METRICS)}")
        metric = METRICS[self.metric]
        given = [form for form in LIMIT_FORMS if getattr(self, form) is not None]
        if len(given) != 1 or given[0] not in metric.forms:
            allowed, stated = " or ".join(metric.forms), " and ".join(given) or "none"
            raise ValueError(f"metric {self.metric} takes the limit {allowed}, not {stated}")
        if (self.limit_floor is None) == (self.form == "at_most_noise_multiple"):
            raise ValueError("at_most_noise_multiple and limit_floor belong together")
        if self.max_drop is None and self.bound is not None and not _possible(metric.unit, self.bound):
            raise ValueError(
                f"{self.form}: {self.bound:g} is no possible limit of {self.metric} ({metric.unit})"
            )
        return self

    @model_validator(mode="after")
    def _scope_fits_metric(self) -> Self:
        metric = METRICS[self.metric]
        if self.group != ALL and not metric.has_tasks:
            raise ValueError(f"metric {self.metric} has no tasks, so `group` says nothing")
        if self.mode is not None and not (metric.has_modes or metric.has_loads):
            raise ValueError(f"metric {self.metric} is measured cold only, so `mode` says nothing")
        if self.input_tokens is not None and not metric.has_loads:
            raise ValueError(
                f"metric {self.metric} is not measured by length, so `input_tokens` says nothing"
            )
        if self.context is not None:
            start, end = self.context
            if not metric.has_lengths or start >= end or self.group != ALL:
                raise ValueError(
                    "context is [start, end] with start < end, of a token or retrieval metric of all items"
                )
            if self.decode_position is not None:
                raise ValueError("a rule has either decode_position or context")
        if self.decode_position is not None:
            start, end = self.decode_position
            if metric.kind != "token" or start >= end:
                raise ValueError("decode_position is [start, end] with start < end, of a token metric")
        return self

    @property
    def form(self) -> LimitForm:
        """Which limit is given."""
        return next(form for form in LIMIT_FORMS if getattr(self, form) is not None)

    @property
    def bound(self) -> float | None:
        """The value of the metric's estimate at which the rule is just broken; None where only a run shows it."""
        if self.max_drop is not None:
            return -self.max_drop
        return self.at_most if self.at_most is not None else self.at_least

    @property
    def subset(self) -> str:
        """The group of the deltas that the rule speaks of; `each` and `worst` stand for every task."""
        if self.decode_position:
            return positions_group(*self.decode_position)
        if self.context:
            return context_group(*self.context)
        return load_group(self.input_tokens) if self.input_tokens else self.group

    @property
    def demands_gain(self) -> bool:
        """True for a ratio that an unchanged engine does not reach: the rule asks for what the change is for."""
        if METRICS[self.metric].unit != "x" or self.bound is None:
            return False
        return self.bound > 1 if METRICS[self.metric].higher_is_better else self.bound < 1


def _possible(unit: str, limit: float) -> bool:
    match unit:
        case "share":
            return 0 <= limit <= 1
        case "x":
            return limit > 0 and 1 / limit < math.inf  # tests of the other side take its inverse
        case _:
            return limit >= 0


class Policy(Closed):
    """The rules that a change must pass, and the error rate they are judged at."""

    name: Annotated[Name, Field(description="What changes call it; the name of the file without .yaml.")]
    description: Annotated[str, Field(description="What it is for, in one sentence.")] = ""
    alpha: Annotated[
        float,
        Field(
            ge=1e-6, lt=0.5, description="One-sided error rate: of passing a change that breaks a rule, and of failing "
            "one that breaks none.",
        ),
    ] = 0.05  # fmt: skip
    rules: Annotated[
        tuple[Rule, ...],
        Field(
            min_length=1,
            description="PASS needs every blocking rule; one proven regression fails. Two rules may "
            "share a metric if their scopes differ.",
        ),
    ]  # fmt: skip

    @model_validator(mode="after")
    def _distinct_and_blocking(self) -> Self:
        scopes = [(rule.metric, rule.subset, rule.mode) for rule in self.rules]
        twice = sorted({scope[0] for scope in scopes if scopes.count(scope) > 1})
        if twice:
            raise ValueError(f"more than one rule in the same scope for {', '.join(twice)}")
        if all(rule.severity == "warn" for rule in self.rules):
            raise ValueError("no rule blocks, so every change would pass")
        return self
