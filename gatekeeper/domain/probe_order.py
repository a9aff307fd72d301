"""Before a run: what each probe costs and can show, and so which comes first.

A probe's *information* is (margin / detectable)² of the blocking rule that it decides most easily, where
`detectable` is the harm that it shows in four runs of five (`gatekeeper.domain.foresight`). The standard error of a
mean falls with the square root of the items, so this is how many times over the probe has the items which that rule
needs. Probes with more of it per second come first: they are likelier to end a hopeless run early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from gatekeeper.domain.foresight import foresee
from gatekeeper.domain.free_decode import FREE_PROMPT_TOKENS, FreeDecodeProbe
from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.plan import Plan
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
from gatekeeper.domain.vllm_flags import Device

TOKENS_PER_SECOND: Final[Mapping[Device, tuple[float, float]]] = {"cpu": (500, 290), "cuda": (20_000, 2_000)}
"""Read and decoded, 16 requests at once. Only their ratio matters here. CPU: measured with 135 million parameters on
two cores with AVX-512; GPU: an order of magnitude, not measured."""

ANSWER_TOKENS: Final = 16
"""Of an item of retrieval; they are a part of its length."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one arm does in a probe, in all the states that it is measured in. `items` and tokens are of all of them."""

    items: int
    read_tokens: int
    decoded_tokens: int

    def seconds(self, device: Device) -> float:
        """A planning value, for comparing probes."""
        read, decoded = TOKENS_PER_SECOND[device]
        return self.read_tokens / read + self.decoded_tokens / decoded


def work_of(probe: Probe, modes: tuple[Mode, ...]) -> Work | None:
    """What an arm measured in `modes` does; None where only the run shows it. A warm cache is not read again."""
    match probe:
        case CapacityProbe():
            return Work(items=0, read_tokens=0, decoded_tokens=0)
        case FidelityProbe():
            states = sum(mode in modes for mode in ("cold", "warm"))
            contexts = probe.documents * sum(probe.context_lengths)
            return _work(states * probe.sequences, states * contexts, probe.decode_tokens)
        case ModesProbe():
            met = [mode for mode in probe.modes if mode in modes]
            contexts = sum(max(probe.context_lengths_in(mode)) for mode in met) * probe.documents
            return _work(len(met) * probe.documents, contexts, probe.decode_tokens)
        case SaturatedProbe():
            return _work(probe.documents, probe.documents * probe.context_tokens, probe.decode_tokens)
        case AccuracyProbe():
            return _of_tasks(probe)
        case FreeDecodeProbe():
            items = sum(probe.items.values())
            return _work(items, items * FREE_PROMPT_TOKENS, probe.decode_tokens)
        case RetrievalProbe():
            items = sum(probe.items.values())
            return _work(items, probe.tokens - items * ANSWER_TOKENS, ANSWER_TOKENS)
        case PerformanceProbe():
            rounds = (probe.rounds + 1) * (2 * probe.turns.launches if probe.turns else 1)
            requests = probe.prompts * rounds
            return _work(
                requests * len(probe.loads), requests * sum(load.input_tokens for load in probe.loads),
                probe.output_tokens,
            )  # fmt: skip
        case _:
            assert_never(probe)


def _work(items: int, read_tokens: int, decoded_by_each: int) -> Work:
    return Work(items=items, read_tokens=read_tokens, decoded_tokens=items * decoded_by_each)


def _of_tasks(probe: AccuracyProbe) -> Work | None:
    """lm-eval reads every choice of an item; one token is decoded to end the request."""
    counts = [count for count in probe.items.values() if count is not None]
    if len(counts) < len(probe.items) or probe.tokens_per_request is None:
        return None
    requests = probe.choices * sum(counts)
    return Work(items=sum(counts), read_tokens=requests * probe.tokens_per_request, decoded_tokens=requests)


def information(plan: Plan, probe: Probe) -> float:
    """How many times over the probe has what its easiest blocking rule needs; 0 where none is foreseen."""
    suite = plan.suite.model_copy(update={"probes": (probe,)})
    seen = foresee(plan.model_copy(update={"suite": suite}))
    return max(
        (
            (outlook.margin / outlook.detectable) ** 2
            for outlook in seen
            if outlook.severity == "block" and outlook.margin and outlook.detectable
        ),
        default=0.0,
    )


def in_order(plan: Plan) -> tuple[Probe, ...]:
    """The suite's probes as they are run; those that nothing tells apart stay in the order of the suite.

    The capacity and the first batch come first, then all other quality by information per second, then speed, since a
    fast broken engine is no gain. What needs engines of its own comes after all that: the saturated pool, turns last.
    """
    return tuple(
        sorted(plan.suite.probes, key=lambda probe: (_place(probe), -_information_per_second(plan, probe)))
    )


def _place(probe: Probe) -> int:
    match probe:
        case CapacityProbe():
            return 0
        case ModesProbe() if "first_batch" in probe.modes:
            return 1
        case PerformanceProbe(turns=None):
            return 3
        case SaturatedProbe():
            return 4
        case PerformanceProbe():
            return 5
        case _:
            return 2


def _information_per_second(plan: Plan, probe: Probe) -> float:
    work = work_of(probe, plan.modes)
    seconds = work.seconds(plan.candidate.device) if work else 0.0
    return information(plan, probe) / seconds if seconds else 0.0
