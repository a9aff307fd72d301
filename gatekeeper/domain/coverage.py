"""Does a suite reach what a change declares? A PASS speaks of nothing that no probe has met."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from gatekeeper.domain.change import Deployment
from gatekeeper.domain.eviction import (
    Budgeted,
    Composed,
    Eviction,
    NoEviction,
    PerLayer,
    SinglePolicy,
    TopK,
    layer_ranges,
)
from gatekeeper.domain.kv_budget import left_to_bound, tokens_kept
from gatekeeper.domain.kv_config import KVConfig, skipped_layers
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.suite import Suite


def gaps_of_deployment(deployment: Deployment, suite: Suite, policy: Policy) -> Iterator[str]:
    """What the deployment declares and the suite does not reach, one phrase each."""
    context, decode, in_flight = deployment.max_context, deployment.decode_tokens, deployment.concurrency
    if context and context > suite.quality_context:
        yield f"max_context {context} > {suite.quality_context} tokens reached"
    if decode and decode > suite.quality_decode:
        yield f"decode_tokens {decode} > {suite.quality_decode} tokens decoded"
    reached = suite.quality_requests
    if in_flight and reached is not None and in_flight > reached:
        yield f"concurrency {in_flight} > {reached} requests in flight"
    prompts = suite.speed_requests
    if in_flight and prompts is not None and in_flight > prompts and _blocks_on_speed(policy):
        yield f"concurrency {in_flight} > {prompts} prompts of the speed rounds"


def gaps_of_features(
    baseline: KVConfig, candidate: KVConfig, suite: Suite, *, concurrency: int, layers: int | None
) -> Iterator[str]:
    """What the candidate changes and no probe of the suite can bring about, one phrase each.

    `layers`: those of the model; None: not known.
    """
    for name, evicts in _parts(candidate.eviction, layers):
        if not any(evicts(*lengths) for lengths in suite.quality_lengths):
            yield f"{name} keeps all of every sequence, of up to {suite.quality_context} tokens"
    budget = candidate.scheduling.max_num_batched_tokens
    batch = suite.prompt_tokens_in_flight(concurrency)
    if budget and budget != baseline.scheduling.max_num_batched_tokens and budget >= batch:
        yield f"max_num_batched_tokens {budget}: all prompts in flight have {batch} tokens, so none is split"
    if candidate.reuse.prefix_caching and not suite.meets_warm_cache:
        yield "prefix_caching: no probe meets a warm cache"
    if candidate.reuse.offload_gib and not baseline.reuse.offload_gib:
        yield "offload_gib: no probe brings a block back from the host"
    yield from _gap_of_sequences(baseline, candidate, min(concurrency, suite.quality_requests or concurrency))


def _gap_of_sequences(baseline: KVConfig, candidate: KVConfig, in_flight: int) -> Iterator[str]:
    """Another limit on sequences changes nothing where the lower one of both is never met."""
    before, after = baseline.scheduling.max_num_seqs, candidate.scheduling.max_num_seqs
    if after is not None and after != before and min(after, before or after) >= in_flight:
        yield f"max_num_seqs {after}: {in_flight} requests are in flight, and no more wait"


def undeclared(deployment: Deployment, candidate: KVConfig, suite: Suite) -> str | None:
    """What the verdict speaks of where the deployment leaves its lengths open; None where nothing is open.

    Nothing is inferred from `max_model_len`: servers are often started with all that the model has, and no prompt of
    that length ever arrives.
    """
    lengths = {"max_context": deployment.max_context, "decode_tokens": deployment.decode_tokens}
    missing = [name for name, value in lengths.items() if value is None]
    if not missing or not suite.quality_context:
        return None
    limit = candidate.scheduling.max_model_len
    served = (
        f", while the candidate serves up to {limit:,}" if limit and limit > suite.quality_context else ""
    )
    return (
        f"The deployment declares no {' and no '.join(missing)}: the verdict speaks of sequences of up to "
        f"{suite.quality_context:,} tokens, {suite.quality_decode:,} of them decoded{served}."
    )


Evicts = Callable[[int, int], bool]
"""Tokens of a prompt and of what is decoded after it -> whether any of them is left out."""


def _parts(eviction: Eviction, layers: int | None) -> Iterator[tuple[str, Evicts]]:
    """What each policy is called where it stands, and when it evicts; each of several has to."""
    match eviction:
        case Composed(prompt=prompt, decode=decode):
            yield f"{prompt.policy} after the prompt", partial(_evicts, prompt)
            yield f"{decode.policy} while decoding", partial(_bounds, eviction, layers)
        case PerLayer(groups=groups, other=other):
            for group in groups:
                name = f"{group.eviction.policy} in {layer_ranges(group.layers)}"
                yield name, partial(_evicts, group.eviction)
            yield f"{other.policy} in the other layers", partial(_evicts, other)
        case _:
            yield eviction.policy, partial(_evicts, eviction)


def _bounds(eviction: Composed, layers: int | None, prompt: int, decode: int) -> bool:
    """Whether its second policy leaves out anything of what the first has left in some layer, and of what is decoded.

    Of a share, the fewer layers there are, the less is left in those that are not skipped. So of an unknown number it
    is certain what the fewest would hold that have the skipped ones and one other.
    """
    skipped = skipped_layers(eviction)
    fewest = max(len(skipped), *skipped, 0) + 1
    left = left_to_bound(eviction, prompt, layers=fewest if layers is None else layers)
    return _evicts(eviction.decode, min(left) if layers is None else max(left), decode)


def _evicts(eviction: SinglePolicy, prompt: int, decode: int) -> bool:
    """Whether it leaves out anything of a sequence of so many tokens; what changes nothing has nothing to bring about.

    A share leaves out something of any prompt, so also of those whose length only the tasks know.
    """
    match eviction:
        case NoEviction():
            return True
        case Budgeted() if eviction.evicted_fraction is not None:
            return True
        case TopK(k=k):  # it frees nothing, and reads less
            return k < prompt + decode
        case _:
            return tokens_kept(eviction, prompt + decode, decode_tokens=decode) < prompt + decode


def _blocks_on_speed(policy: Policy) -> bool:
    return any(METRICS[rule.metric].kind == "speed" and rule.severity == "block" for rule in policy.rules)
