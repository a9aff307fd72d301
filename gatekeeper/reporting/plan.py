"""A plan for people at a terminal: what a gate would start, measure and demand."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from gatekeeper.domain.foresight import Foresight, Outlook
from gatekeeper.domain.free_decode import FreeDecodeProbe, FreeText
from gatekeeper.domain.kv_account import MemoryQuestion, memory_account
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import ArmPlan, Plan
from gatekeeper.domain.probe_order import in_order, information, work_of
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
from gatekeeper.reporting.figures import limit, of_group
from gatekeeper.reporting.text import columns, wrapped

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
FREE_TEXTS: Final[Mapping[FreeText, str]] = {
    "prose": "texts",
    "json": "lists of records",
    "tool_call": "lists of tool calls",
}


def render_plan(plan: Plan, *, shape_source: str, foresight: Sequence[Foresight]) -> str:
    """The whole plan. `shape_source` says where the model's shape comes from; `foresight`: one per rule."""
    parts: list[Iterable[str]] = [
        [f"plan  {plan.change.label} of {plan.change.model}"],
        _memory(plan, shape_source),
        _arms(plan),
        _suite(plan),
        _policy(plan, foresight),
        _coverage(plan),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def size(count: float) -> str:
    """Bytes as a person reads them."""
    for unit, factor in UNITS:
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def _memory(plan: Plan, shape_source: str) -> Iterator[str]:
    shape, arms = plan.baseline.model.shape, (plan.baseline, plan.candidate)
    per_token = [arm.predicted_kv_bytes_per_token for arm in arms]
    if shape is None or per_token[0] is None or per_token[1] is None:
        yield f"KV cache: unknown, since the model's shape is not known ({shape_source})"
        return
    yield f"KV cache, by formula for {shape_phrase(shape)} ({shape_source})"
    context = plan.change.deployment.max_context or plan.suite.quality_context
    before, after = (value for value in per_token if value is not None)
    ratio = f"{before / after:.2f}x the tokens in the same memory"
    rows = [("bytes per token", f"{before:,.0f}", f"{after:,.0f}", ratio)]
    if context:
        baseline, candidate = (size(_pool(arm, shape, plan, context)) for arm in arms)
        rows.append((f"{context:,} tokens x {plan.concurrency}", baseline, candidate, ""))
    yield from columns(("", "baseline", "candidate", ""), rows)


def _pool(arm: ArmPlan, shape: ModelShape, plan: Plan, context: int) -> float:
    """The bytes of as many sequences as are in flight, once the arm's policy has evicted what it evicts of them."""
    question = MemoryQuestion(
        quantization=arm.config.quantization,
        eviction=arm.config.eviction,
        block_size=arm.config.scheduling.block_size,
        context=context,
        decode_tokens=min(plan.change.deployment.decode_tokens or 0, context - 1),
        concurrency=plan.concurrency,
    )
    return memory_account(shape, question).total_bytes


def shape_phrase(shape: ModelShape) -> str:
    """A model's attention geometry in a few words."""
    if shape.latent_dim:
        heads = f"latent {shape.latent_dim} + {shape.rope_dim}"
    else:
        heads = f"{shape.kv_heads} KV heads of {shape.attention_heads}, head_dim {shape.head_dim}"
    return f"{shape.layers} layers, {heads}"


def _arms(plan: Plan) -> Iterator[str]:
    yield "Launches (the worker adds address, model type, seed and what measuring needs)"
    yield from wrapped(f"engine: {plan.candidate.engine}, {plan.engine_reason}", indent="  ")
    yield from _launch("baseline", plan.baseline)
    yield from _launch("candidate", plan.candidate)
    yield from wrapped(f"cache states measured: {', '.join(plan.modes)}", indent="  ")


def _launch(role: str, arm: ArmPlan) -> Iterator[str]:
    yield f"  {role}, on {arm.device}"
    # Not wrapped: a command is there to be copied.
    yield f"      {shlex.join(arm.command)}"


def _suite(plan: Plan) -> Iterator[str]:
    suite = plan.suite
    yield f"Suite {suite.name}: reaches {suite.quality_context} tokens of context, {suite.quality_decode} decoded"
    for probe in in_order(plan):
        yield f"  {probe.probe:12} {_probe_phrase(probe)}"
        yield from wrapped(_work_phrase(plan, probe), indent=" " * 15)


def _work_phrase(plan: Plan, probe: Probe) -> str:
    """What an arm does in a probe, and how much that shows."""
    work, shown = work_of(probe, plan.modes), information(plan, probe)
    if work is None:
        return "how many items it has is known only at the run"
    told = (
        [f"{work.items:,} items, {work.read_tokens:,} tokens read, {work.decoded_tokens:,} decoded"]
        if work.items
        else []
    )
    if shown:
        told.append(f"{shown:.2g} times what its easiest rule needs")
    return "; ".join(told)


def _probe_phrase(probe: Probe) -> str:
    match probe:
        case CapacityProbe():
            return "the pool that the engine reports"
        case FidelityProbe():
            contexts = _listed(probe.context_lengths)
            return f"{probe.documents} documents, {contexts} tokens of context + {probe.decode_tokens} forced"
        case ModesProbe():
            lengths = f"{probe.context_tokens} tokens of context + {probe.decode_tokens} forced"
            return f"{probe.documents} documents, {lengths}, in each of {', '.join(probe.modes)}"
        case SaturatedProbe():
            lengths = f"{probe.context_tokens} tokens of context + {probe.decode_tokens} forced"
            pool = f"a pool for {100 * probe.pool_share:.0f}% of them, by an engine of its own"
            return f"{probe.documents} documents, {lengths}, in {pool}"
        case AccuracyProbe(items_per_task=None):
            return f"all items of {', '.join(probe.tasks)}"
        case AccuracyProbe():
            count = (probe.items_per_task or 0) * len(probe.tasks)
            return f"{count} items: {probe.items_per_task} each of {', '.join(probe.tasks)}"
        case FreeDecodeProbe():
            kinds = _listed([f"{probe.prompts} {FREE_TEXTS[kind]}" for kind in probe.kinds])
            return f"{kinds} freely continued by {probe.decode_tokens} tokens"
        case RetrievalProbe():
            lengths = ", ".join(map(str, probe.context_tokens))
            families = f"{sum(probe.items.values())} items of {', '.join(probe.items)}"
            return f"{families} at {lengths} tokens"
        case PerformanceProbe():
            return _speed_phrase(probe)
        case _:
            assert_never(probe)


def _listed(entries: Sequence[object]) -> str:
    """`128`, `128 and 512`, `128, 512 and 1536`."""
    *first, last = map(str, entries)
    return f"{', '.join(first)} and {last}" if first else last


def _speed_phrase(probe: PerformanceProbe) -> str:
    lengths = _listed(probe.input_lengths)
    shared = (
        f", also with {probe.shared_prefix_tokens} shared tokens in front"
        if probe.shared_prefix_tokens
        else ""
    )
    load = f"{probe.prompts} prompts, {lengths} tokens in, {probe.output_tokens} out{shared}"
    if probe.turns is None:
        return f"{load}, {probe.rounds} rounds after one that warms up"
    turns = f"in turns with the baseline, at most {probe.turns.launches} pairs of launches"
    return f"{load}; {turns}, {probe.rounds} rounds each after one that warms up"


OUTLOOKS: Final[Mapping[Outlook, str]] = {
    "decidable": "decidable",
    "undecidable": "NOT DECIDABLE",
    "unknown": "decidable or not",
    "idle": "idle",
}


def _policy(plan: Plan, foresight: Sequence[Foresight]) -> Iterator[str]:
    policy = plan.policy
    yield f"Policy {policy.name}: one-sided bounds at {100 * (1 - policy.alpha):g}% confidence"
    rows = [
        (of_group(rule.metric, rule.subset) + (f", {rule.mode}" if rule.mode else ""), limit(rule))
        for rule in policy.rules
    ]
    _, *lines = columns(("", ""), rows)
    for rule, line, seen in zip(policy.rules, lines, foresight, strict=True):
        yield line
        yield from wrapped(rule.reason, indent="      ")
        yield from wrapped(f"{OUTLOOKS[seen.outlook]}: {seen.sentence}", indent="      ")


def _coverage(plan: Plan) -> Iterator[str]:
    gaps, undeclared = plan.coverage_gaps, plan.undeclared
    if gaps:
        yield "Coverage gaps: no PASS is possible (INVALID)"
    else:
        yield "Coverage: the suite reaches all that the deployment declares"
    for phrase in (*gaps, undeclared):
        if phrase is not None:
            yield from wrapped(phrase, indent="  ")
