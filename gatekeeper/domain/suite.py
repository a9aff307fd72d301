"""A suite: a named, fingerprinted list of probes."""

from __future__ import annotations

import hashlib
from typing import Annotated, Self, assert_never

from pydantic import Field, model_validator

from gatekeeper.domain.base import Closed
from gatekeeper.domain.change import Name
from gatekeeper.domain.free_decode import FREE_PROMPT_TOKENS, FreeDecodeProbe
from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.probes import (
    AccuracyProbe,
    CapacityProbe,
    FidelityProbe,
    ModesProbe,
    Probe,
    RetrievalProbe,
    SaturatedProbe,
)
from gatekeeper.domain.speed_probe import PerformanceProbe


class Suite(Closed):
    """The probes that every arm of a run goes through; `gatekeeper.domain.probe_order` says in which order.

    `policy`: for changes that name none; one whose rules the probes can answer.

    `stop_early`: a probe of the candidate ends after the batch that settles it, and later probes are left out once the
    verdict is certain to be FAIL. Probes have batches for that alone: every look costs a little power.
    """

    name: Name
    description: str
    policy: Name = "default"
    stop_early: bool = False
    probes: Annotated[tuple[Probe, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_probe_of_a_kind(self) -> Self:
        kinds = [probe.probe for probe in self.probes]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"a probe is there twice: {', '.join(kinds)}")
        return self

    @model_validator(mode="after")
    def _first_comes_first(self) -> Self:
        asking = [probe for probe in self.probes if not isinstance(probe, CapacityProbe)]
        late = [p for p in asking[1:] if isinstance(p, ModesProbe) and "first_batch" in p.modes]
        if late or any(isinstance(p, ModesProbe) and "first_batch" in p.modes[1:] for p in asking[:1]):
            raise ValueError("first_batch is the first mode of the first probe that sends requests")
        return self

    @model_validator(mode="after")
    def _batches_are_for_stopping(self) -> Self:
        cut = [p.probe for p in self.probes if isinstance(p, AccuracyProbe | FidelityProbe) and p.batches > 1]
        if cut and not self.stop_early:
            raise ValueError(f"{', '.join(cut)}: batches are for a suite with stop_early")
        return self

    @property
    def longest_request(self) -> int:
        """Tokens of prompt and answer of the longest request whose length the suite decides."""
        return max(context + decode for context, decode in (*self.quality_lengths, *self._speed_lengths()))

    @property
    def quality_context(self) -> int:
        """The longest sequence at which quality is measured, in tokens. Speed at a length says nothing of quality."""
        return max(context + decode for context, decode in self.quality_lengths)

    @property
    def quality_decode(self) -> int:
        """The longest decoded stretch at which quality is measured, in tokens."""
        return max(decode for _, decode in self.quality_lengths)

    @property
    def has_context_lengths(self) -> bool:
        """Whether documents are scored after contexts of several lengths."""
        probes = [probe for probe in self.probes if isinstance(probe, FidelityProbe)]
        return any(len(probe.context_lengths) > 1 for probe in probes)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The states beside cold and warm that it puts every arm into."""
        probed = [mode for probe in self.probes if isinstance(probe, ModesProbe) for mode in probe.modes]
        saturated: list[Mode] = ["saturated" for probe in self.probes if isinstance(probe, SaturatedProbe)]
        return (*probed, *saturated)

    @property
    def chunked_context_tokens(self) -> int:
        """The context in `chunked` mode; 0 without it."""
        lengths = [
            p.chunked_context_tokens
            for p in self.probes
            if isinstance(p, ModesProbe) and "chunked" in p.modes
        ]
        return max(lengths, default=0)

    @property
    def speed(self) -> PerformanceProbe | None:
        """The probe that measures speed, if there is one."""
        return next((probe for probe in self.probes if isinstance(probe, PerformanceProbe)), None)

    def is_in_turns(self, probe: Probe) -> bool:
        """True for the probe whose engines take turns, in launches of their own."""
        return isinstance(probe, PerformanceProbe) and probe.turns is not None

    @property
    def launches(self) -> int:
        """The most pairs of launches that take turns."""
        return self.speed.turns.launches if self.speed and self.speed.turns else 1

    @property
    def quality_requests(self) -> int | None:
        """The most requests that can be in flight while quality is measured; None where the suite sets no bound.

        Fidelity sends as many as are declared; of tasks without `expected_items` the number is known only at the run.
        In `chunked` mode, alone of all, there is one at a time.
        """
        items: list[int | None] = [0]
        for probe in self.probes:
            match probe:
                case FidelityProbe():
                    items.append(None)
                case RetrievalProbe():
                    items.append(sum(probe.items.values()))
                case AccuracyProbe() | FreeDecodeProbe():
                    items.append(probe.in_flight)
                case ModesProbe() | SaturatedProbe():
                    items.append(probe.documents)
                case PerformanceProbe() | CapacityProbe():
                    pass
                case _:
                    assert_never(probe)
        return None if None in items else max(count or 0 for count in items)

    def prompt_tokens_in_flight(self, concurrency: int) -> int:
        """The most prompt tokens that wait at once while quality is measured; in `chunked` mode one prompt's."""
        forced = [
            (probe.context_tokens, probe.documents)
            for probe in self.probes
            if isinstance(probe, ModesProbe | SaturatedProbe)
        ]
        fidelity = [probe for probe in self.probes if isinstance(probe, FidelityProbe)]
        forced += [(probe.longest_context, _longest_at_once(probe, concurrency)) for probe in fidelity]
        free = [(FREE_PROMPT_TOKENS, p.in_flight) for p in self.probes if isinstance(p, FreeDecodeProbe)]
        retrieval = [
            (min(p.context_tokens), sum(p.items.values()))  # lengths come in random order
            for p in self.probes
            if isinstance(p, RetrievalProbe)
        ]
        at_once = [tokens * min(concurrency, requests) for tokens, requests in (*forced, *free, *retrieval)]
        return max((*at_once, self.chunked_context_tokens))

    @property
    def speed_requests(self) -> int | None:
        """The most requests that can be in flight in a round of the speed probe; None without one."""
        prompts = [probe.prompts for probe in self.probes if isinstance(probe, PerformanceProbe)]
        return max(prompts, default=None)

    @property
    def meets_warm_cache(self) -> bool:
        """Whether some probe measures quality with its prompts already in the prefix cache."""
        return any(isinstance(probe, FidelityProbe) for probe in self.probes)

    @property
    def quality_lengths(self) -> list[tuple[int, int]]:
        """Tokens of prompt and of decode of the longest sequences at which quality is measured, by probe."""
        saturated = [probe for probe in self.probes if isinstance(probe, SaturatedProbe)]
        longest = [probe for probe in self.probes if isinstance(probe, FidelityProbe | ModesProbe)]
        free = [probe for probe in self.probes if isinstance(probe, FreeDecodeProbe)]
        retrieval = [probe for probe in self.probes if isinstance(probe, RetrievalProbe)]
        return [
            (0, 0),
            *((FREE_PROMPT_TOKENS, probe.decode_tokens) for probe in free),
            *((max(probe.context_tokens), 0) for probe in retrieval),  # the answer is part of the length
            *((probe.context_tokens, probe.decode_tokens) for probe in saturated),
            *((probe.longest_context, probe.decode_tokens) for probe in longest),
        ]

    def _speed_lengths(self) -> list[tuple[int, int]]:
        probe = self.speed
        return [(load.input_tokens, probe.output_tokens) for load in probe.loads] if probe else []

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the suite's canonical JSON, without what only describes it."""
        described = self.model_dump_json(
            exclude={
                "description": True,
                "policy": True,
                "probes": {"__all__": {"expected_items", "choices", "tokens_per_request"}},
            }
        )
        return hashlib.sha256(described.encode()).hexdigest()


def _longest_at_once(probe: FidelityProbe, concurrency: int) -> int:
    """Sequences of the longest context in flight together, at least; of one length it is as many as are declared."""
    return concurrency if len(probe.context_lengths) == 1 else probe.longest_in_flight
