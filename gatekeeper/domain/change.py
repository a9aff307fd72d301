"""What is proposed: a model, a candidate KV configuration and the deployment it is meant for."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from gatekeeper.domain.base import Closed, Number, PositiveInt
from gatekeeper.domain.eviction import NoEviction
from gatekeeper.domain.kv_config import KVConfig, NoQuantization, Reuse, Scheduling

Name = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[\w][\w.:/@+ -]*$")]
EngineName = Literal["vllm", "reference", "llama_cpp", "sglang", "lmdeploy", "tensorrt_llm"]
Scenario = Literal["default", "rag", "chat", "documents", "video", "edge", "reasoning"]


UNDECLARED_CONCURRENCY: Final = 16
MOST_REQUESTS: Final = 2_048
"""At once. Each of them is a thread of the worker, and fidelity sends as many as are declared."""
"""Requests in flight where a deployment does not say."""

Milliseconds = Annotated[Number, Field(gt=0, allow_inf_nan=False)]


class Slo(Closed):
    """What a request must meet to count as good: time to the first token, mean per further token, and to the end."""

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    e2e_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _demands_something(self) -> Self:
        if (self.ttft_ms, self.tpot_ms, self.e2e_ms) == (None, None, None):
            raise ValueError("states no limit; allowed: ttft_ms, tpot_ms, e2e_ms")
        return self


class Deployment(Closed):
    """Where the change is meant to run. Absent values are not declared, so nothing has to cover them.

    `request_rate`: requests per second, arriving as a Poisson process; absent: as fast as `concurrency` lets them in.
    """

    max_context: PositiveInt | None = None
    decode_tokens: PositiveInt | None = None
    concurrency: Annotated[int, Field(gt=0, le=MOST_REQUESTS, strict=True)] | None = None
    request_rate: Annotated[Number, Field(gt=0, allow_inf_nan=False)] | None = None
    slo: Slo | None = None
    scenario: Scenario = "default"

    @property
    def requests_in_flight(self) -> int:
        """How many requests every arm serves at once: as many as declared."""
        return self.concurrency or UNDECLARED_CONCURRENCY


class Ref(Closed):
    """Where the change comes from. `path`: the file in the repository that states it."""

    repo: Name | None = None
    commit: Name | None = None
    author: Name | None = None
    path: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class Change(Closed):
    """A proposed KV-cache change. `baseline` may be left out: see `reference_config`. `policy` absent: the suite's."""

    name: Name | None = None
    model: Name
    engine: EngineName | None = None
    baseline: KVConfig | None = None
    candidate: KVConfig
    deployment: Deployment = Deployment()
    suite: Name = "standard"
    policy: Name | None = None
    ref: Ref = Ref()

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.resolved_candidate == self.resolved_baseline:
            raise ValueError("candidate equals the baseline, so there is nothing to judge")
        return self

    @property
    def label(self) -> str:
        """The name of this change, or a description of what it changes."""
        return self.name or self.resolved_candidate.label_against(self.resolved_baseline)

    @property
    def resolved_baseline(self) -> KVConfig:
        """The baseline as given, or the reference configuration."""
        return self.baseline if self.baseline is not None else reference_config()

    @property
    def resolved_candidate(self) -> KVConfig:
        """The candidate, with what it leaves out taken from the baseline: only what it names may differ."""
        baseline, candidate = self.resolved_baseline, self.candidate
        named = candidate.model_fields_set
        return KVConfig(
            quantization=candidate.quantization if "quantization" in named else baseline.quantization,
            eviction=candidate.eviction if "eviction" in named else baseline.eviction,
            reuse=Reuse(**baseline.reuse.model_dump() | candidate.reuse.model_dump(exclude_none=True)),
            scheduling=Scheduling(
                **baseline.scheduling.model_dump() | candidate.scheduling.model_dump(exclude_none=True)
            ),
            engine_args=baseline.engine_args | candidate.engine_args,
        )


def reference_config() -> KVConfig:
    """The configuration that a change is held against by default: 16-bit, full cache, nothing reused."""
    return KVConfig(
        quantization=NoQuantization(),
        eviction=NoEviction(),
        reuse=Reuse(prefix_caching=False),
        scheduling=Scheduling(),
    )
