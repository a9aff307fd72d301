"""The metrics that rules can name: what they mean, their unit, and which form of limit fits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

LimitForm = Literal["max_drop", "at_most", "at_least"]
Kind = Literal["binary", "token", "speed", "capacity"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A judged quantity. `kind` decides how it is estimated; `form` which limit a rule states for it."""

    name: str
    kind: Kind
    form: LimitForm
    unit: str
    title: str
    source: str = ""
    """For speed: the measured figure whose ratio candidate / baseline this is."""

    @property
    def higher_is_better(self) -> bool:
        """True where a rule bounds the metric from below."""
        return self.form != "at_most"


METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric(name="accuracy", kind="binary", form="max_drop", unit="share", title="accuracy change"),
        Metric(name="decode_kl", kind="token", form="at_most", unit="nats/token", title="decode KL"),
        Metric(name="decode_nll", kind="token", form="at_most", unit="nats/token", title="decode NLL change"),
        Metric(name="top1_agreement", kind="token", form="at_least", unit="share", title="top-1 agreement"),
        Metric(
            name="throughput_ratio", kind="speed", form="at_least", unit="x", title="throughput",
            source="output_throughput_tok_s",
        ),
        Metric(name="ttft_p50_ratio", kind="speed", form="at_most", unit="x", title="TTFT p50", source="ttft_p50_ms"),
        Metric(name="ttft_p99_ratio", kind="speed", form="at_most", unit="x", title="TTFT p99", source="ttft_p99_ms"),
        Metric(
            name="itl_p50_ratio", kind="speed", form="at_most", unit="x", title="inter-token p50", source="itl_p50_ms"
        ),
        Metric(
            name="itl_p99_ratio", kind="speed", form="at_most", unit="x", title="inter-token p99", source="itl_p99_ms"
        ),
        Metric(name="kv_capacity_ratio", kind="capacity", form="at_least", unit="x", title="KV capacity"),
    )
}  # fmt: skip
