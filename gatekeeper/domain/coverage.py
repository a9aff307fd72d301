"""Does a suite reach what a change declares? A PASS speaks of nothing that no probe has met."""

from __future__ import annotations

from collections.abc import Iterator

from gatekeeper.domain.change import Deployment
from gatekeeper.domain.kv_config import Eviction, KVConfig, SlidingWindow, StreamingLlm, TopK
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
    baseline: KVConfig, candidate: KVConfig, suite: Suite, *, concurrency: int
) -> Iterator[str]:
    """What the candidate changes and no probe of the suite can bring about, one phrase each."""
    kept = kept_tokens(candidate.eviction)
    if kept is not None and kept >= suite.quality_context:
        yield (
            f"{candidate.eviction.policy} keeps {kept} tokens and no sequence is longer than {suite.quality_context}, "
            "so nothing is evicted"
        )
    budget = candidate.scheduling.max_num_batched_tokens
    batch = suite.prompt_tokens_in_flight(concurrency)
    if budget and budget != baseline.scheduling.max_num_batched_tokens and budget >= batch:
        yield f"max_num_batched_tokens {budget}: all prompts in flight have {batch} tokens, so none is split"
    if candidate.reuse.prefix_caching and not suite.meets_warm_cache:
        yield "prefix_caching: no probe meets a warm cache"


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


def kept_tokens(eviction: Eviction) -> int | None:
    """How many tokens of a sequence survive; None: all, or a share of them."""
    match eviction:
        case SlidingWindow(window=window):
            return window
        case StreamingLlm(sinks=sinks, window=window):
            return sinks + window
        case TopK(k=k):
            return k
        case _:
            budget: int | None = getattr(eviction, "budget_tokens", None)
            return budget


def _blocks_on_speed(policy: Policy) -> bool:
    return any(METRICS[rule.metric].kind == "speed" and rule.severity == "block" for rule in policy.rules)
