"""The metrics that rules can name: what they mean, their unit, and which form of limit fits them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gatekeeper.domain.measurement import Mode

LimitForm = Literal["max_drop", "at_least_of_baseline", "at_most", "at_most_noise_multiple", "at_least"]
Kind = Literal["token", "binary", "score", "speed", "capacity"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A judged quantity. `kind` decides how it is estimated; `form` is its plain limit, `also` the other ones."""

    name: str
    suite: str
    """The probe that measures it; token metrics are measured by others too, in modes of their own."""
    kind: Kind
    form: LimitForm
    unit: str
    title: str
    also: tuple[LimitForm, ...] = ()
    against: Literal["baseline", "cold"] = "baseline"
    """For tokens: what the candidate's mode is held against, the baseline's, or the candidate's own cold cache."""
    is_over_contexts: bool = False
    """For tokens: it compares lengths of context, so it needs a suite that has several."""
    source: str = ""
    """For items and speed: the measured figure that is compared."""

    @property
    def forms(self) -> tuple[LimitForm, ...]:
        """Every limit that a rule can state for it."""
        return (self.form, *self.also)

    @property
    def higher_is_better(self) -> bool:
        """True where a rule bounds the metric from below."""
        return self.form != "at_most"

    @property
    def possible(self) -> tuple[float, float]:
        """The least and the largest true value, in its unit: no bound says more than that."""
        if self.unit == "share":
            return (-1.0 if self.form == "max_drop" else 0.0, 1.0)
        return (0.0 if self.unit == "x" or self.name.endswith("_kl") else -math.inf, math.inf)

    @property
    def has_tasks(self) -> bool:
        """True where the items belong to tasks, so that a rule can speak of one."""
        return self.kind in ("binary", "score")

    @property
    def has_lengths(self) -> bool:
        """True where every item knows how long its context was, so that a rule can speak of some lengths."""
        return self.suite == "retrieval" or (self.kind == "token" and not self.is_over_contexts)

    def modes_of(self, measured: Sequence[Mode]) -> tuple[Mode, ...]:
        """Of the states in which an arm is measured, those in which this metric has to be known."""
        if self.against == "cold":
            return tuple(mode for mode in measured if mode == "warm")
        if self.has_loads or self.is_over_contexts:
            return tuple(mode for mode in measured if mode in ("cold", "warm"))
        return tuple(measured) if self.has_modes else ("cold",)

    @property
    def has_modes(self) -> bool:
        """True where it is measured in every cache state of an arm, not only cold."""
        return self.kind == "token"

    @property
    def has_loads(self) -> bool:
        """True where it is measured under requests of several lengths, and of a shared prefix, each by itself."""
        return self.kind == "speed"


METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric(
            name="accuracy", suite="accuracy", kind="binary", form="max_drop", unit="share", title="accuracy change",
            also=("at_least_of_baseline",), source="correct",
        ),
        Metric(
            name="choice_probability", suite="accuracy", kind="score", form="max_drop", unit="share",
            title="right-choice probability", source="right_choice_probability",
        ),
        Metric(
            name="decode_kl", suite="fidelity", kind="token", form="at_most", unit="nats/token", title="decode KL",
            also=("at_most_noise_multiple",),
        ),
        Metric(
            name="decode_nll", suite="fidelity", kind="token", form="at_most", unit="nats/token",
            title="decode NLL change", also=("at_most_noise_multiple",),
        ),
        Metric(name="kl_drift", suite="fidelity", kind="token", form="at_most", unit="nats/token", title="KL drift"),
        Metric(
            name="kl_context_drift", suite="fidelity", kind="token", form="at_most", unit="nats/token",
            title="KL drift over context", is_over_contexts=True,
        ),
        Metric(name="rank_shift", suite="fidelity", kind="token", form="at_most", unit="places", title="rank shift"),
        Metric(
            name="consistency_kl", suite="fidelity", kind="token", form="at_most", unit="nats/token",
            title="KL to its own cold cache", against="cold",
        ),
        Metric(
            name="top1_agreement", suite="fidelity", kind="token", form="at_least", unit="share",
            title="top-1 agreement",
        ),
        Metric(
            name="sound_text", suite="free_decode", kind="binary", form="max_drop", unit="share",
            title="sound free text", also=("at_least_of_baseline",), source="sound",
        ),
        Metric(
            name="distinct_text", suite="free_decode", kind="score", form="max_drop", unit="share",
            title="distinct 4-grams", source="distinct_share",
        ),
        Metric(
            name="retrieval_accuracy", suite="retrieval", kind="binary", form="max_drop", unit="share",
            title="retrieval accuracy change", also=("at_least_of_baseline",), source="retrieved",
        ),
        Metric(
            name="retrieval_probability", suite="retrieval", kind="score", form="max_drop", unit="share",
            title="retrieved-answer probability", source="answer_probability",
        ),
        Metric(
            name="throughput_ratio", suite="performance", kind="speed", form="at_least", unit="x", title="throughput",
            source="output_throughput_tok_s",
        ),
        Metric(
            name="goodput_ratio", suite="performance", kind="speed", form="at_least", unit="x", title="goodput",
            source="goodput_req_s",
        ),
        *(
            Metric(
                name=f"{figure}_p{percentile}_ratio", suite="performance", kind="speed", form="at_most", unit="x",
                title=f"{title} p{percentile}", source=f"{figure}_p{percentile}_ms",
            )
            for figure, title in (("ttft", "TTFT"), ("itl", "inter-token"), ("e2e", "end-to-end"))
            for percentile in (50, 90, 99)
        ),
        Metric(
            name="kv_capacity_ratio", suite="capacity", kind="capacity", form="at_least", unit="x",
            title="KV capacity",
        ),
    )
}  # fmt: skip
