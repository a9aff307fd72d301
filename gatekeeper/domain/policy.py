"""A policy: the rules that a change must pass, each with its limit and its reason."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gatekeeper.domain.base import Closed
from gatekeeper.domain.change import Name
from gatekeeper.domain.metric import METRICS, LimitForm

Severity = Literal["block", "warn"]


class Rule(Closed):
    """One line of a policy. Exactly one of the three limits, the one that fits the metric.

    max_drop: the metric may fall by less than this; at_most: its estimate must stay at or below;
    at_least: at or above. All in the metric's own unit.
    """

    metric: str
    max_drop: Annotated[float, Field(ge=0, le=1)] | None = None
    at_most: float | None = None
    at_least: float | None = None
    severity: Severity = "block"
    reason: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _limit_fits_metric(self) -> Self:
        if self.metric not in METRICS:
            raise ValueError(f"unknown metric {self.metric!r}; allowed: {', '.join(METRICS)}")
        given = [form for form in ("max_drop", "at_most", "at_least") if getattr(self, form) is not None]
        form: LimitForm = METRICS[self.metric].form
        if given != [form]:
            raise ValueError(
                f"metric {self.metric} takes the limit {form}, not {' and '.join(given) or 'none'}"
            )
        return self

    @property
    def bound(self) -> float:
        """The value of the metric's estimate at which the rule is just broken."""
        if self.max_drop is not None:
            return -self.max_drop
        limit = self.at_most if self.at_most is not None else self.at_least
        assert limit is not None  # the validator saw to it
        return limit


class Policy(Closed):
    """Rules and the error rate they are judged at. `alpha` is one-sided."""

    name: Name
    description: str = ""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _distinct_and_blocking(self) -> Self:
        names = [rule.metric for rule in self.rules]
        if len(set(names)) < len(names):
            raise ValueError(f"a metric has more than one rule: {', '.join(sorted(names))}")
        if all(rule.severity == "warn" for rule in self.rules):
            raise ValueError("no rule blocks, so every change would pass")
        return self
