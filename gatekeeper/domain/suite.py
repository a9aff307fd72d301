"""A suite: a named, fingerprinted list of probes with their sizes and seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from gatekeeper.domain.base import Closed, NonNegativeInt, PositiveInt
from gatekeeper.domain.change import Name


class AccuracyProbe(Closed):
    """lm-eval tasks over the completions API. `items_per_task` takes a seeded subset; absent means all.

    `looks`: how often the evidence is looked at on the way, so that the probe can stop early; bundled tasks only.
    """

    probe: Literal["accuracy"]
    tasks: Annotated[tuple[Name, ...], Field(min_length=1)]
    items_per_task: PositiveInt | None = None
    seed: NonNegativeInt = 0
    looks: Annotated[int, Field(ge=1, le=20, strict=True)] = 1


class FidelityProbe(Closed):
    """Teacher-forced decode: `context_tokens` of a document, then `decode_tokens` more, each forced and scored."""

    probe: Literal["fidelity"]
    documents: Annotated[int, Field(ge=2, le=32, strict=True)]
    context_tokens: PositiveInt
    decode_tokens: PositiveInt
    top_k: Annotated[int, Field(ge=2, le=20, strict=True)] = 20


class PerformanceProbe(Closed):
    """vLLM's serving benchmark on random prompts; the first round warms up and is thrown away."""

    probe: Literal["performance"]
    prompts: PositiveInt
    input_tokens: PositiveInt
    output_tokens: PositiveInt
    shared_prefix_tokens: NonNegativeInt = 0
    rounds: Annotated[int, Field(ge=2, strict=True)]
    seed: NonNegativeInt = 0


class CapacityProbe(Closed):
    """The size of the KV pool that the engine reports."""

    probe: Literal["capacity"]


Probe = Annotated[
    AccuracyProbe | FidelityProbe | PerformanceProbe | CapacityProbe, Field(discriminator="probe")
]


class Suite(Closed):
    """The probes that every arm of a run goes through, in order."""

    name: Name
    description: str
    probes: Annotated[tuple[Probe, ...], Field(min_length=1)]

    @property
    def max_context(self) -> int:
        """The longest sequence, prompt and answer, that any probe of known length reaches, in tokens."""
        return max(context + decode for context, decode in self._lengths())

    @property
    def decode_tokens(self) -> int:
        """The longest stretch of decoded tokens."""
        return max(decode for _, decode in self._lengths())

    def _lengths(self) -> Iterable[tuple[int, int]]:
        yield 0, 0
        for probe in self.probes:
            if isinstance(probe, FidelityProbe):
                yield probe.context_tokens, probe.decode_tokens
            elif isinstance(probe, PerformanceProbe):
                yield probe.shared_prefix_tokens + probe.input_tokens, probe.output_tokens

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the suite's canonical JSON, without its description."""
        return hashlib.sha256(self.model_dump_json(exclude={"description"}).encode()).hexdigest()
