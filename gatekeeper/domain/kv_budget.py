"""How many tokens of a sequence an eviction policy keeps, in all layers alike or layer by layer.

`evicted_fraction` is the share of the prompt's tokens that leave, over all layers, also those that are skipped;
`budget_tokens` is what stays of them in a layer that is not, the mean where layers differ. Where groups of layers have
policies of their own, all that is said of a group alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import repeat
from typing import Final, assert_never

from gatekeeper.domain.eviction import (
    Budgeted,
    Composed,
    Eviction,
    ExpectedAttention,
    HeavyHitter,
    NoEviction,
    PerLayer,
    PrefillSelector,
    PyramidKv,
    SinglePolicy,
    SlidingWindow,
    SnapKv,
    StreamingLlm,
    TopK,
)
from gatekeeper.domain.kv_config import skipped_layers

PYRAMID_STEEPNESS: Final = 20
"""The highest layer gets this part of the mean budget beyond the window (Cai et al. 2024, section 4.2, beta)."""


def tokens_kept(eviction: SinglePolicy, context: int, *, decode_tokens: int = 0) -> int:
    """How many tokens of a sequence stay in a layer without a window of its own, if none is skipped; their mean."""
    match eviction:
        case NoEviction() | TopK():
            return context  # top-k reads less, and frees nothing
        case SlidingWindow(window=window):
            return min(context, window)
        case StreamingLlm(sinks=sinks, window=window):
            return min(context, sinks + window)
        case HeavyHitter():
            return _budget(eviction, context)
        case SnapKv() | PyramidKv() | ExpectedAttention() | PrefillSelector():
            return _budget(eviction, context - decode_tokens) + decode_tokens
        case _:
            assert_never(eviction)


def kept_by_layer(
    eviction: Eviction, context: int, *, layers: int, decode_tokens: int = 0
) -> tuple[int, ...]:
    """The same for each of a model's layers, the lowest first; layers that the policy skips keep everything.

    A share that skipped layers do not give up leaves the others.
    """
    match eviction:
        case PerLayer():
            kept: dict[int, int] = {}
            for group, policy in eviction.by_policy(layers):
                tokens = kept_by_layer(policy, context, layers=len(group), decode_tokens=decode_tokens)
                kept |= dict(zip(group, tokens, strict=True))
            return tuple(kept[layer] for layer in range(layers))
        case Composed(decode=decode):
            prompt = kept_by_layer(eviction.first, context - decode_tokens, layers=layers)
            bounded = [tokens_kept(decode, tokens + decode_tokens) for tokens in prompt]
            skipped = skipped_layers(eviction)
            return tuple(context if layer in skipped else bounded[layer] for layer in range(layers))
        case _:
            return _kept_by_layer(eviction, context, layers=layers, decode_tokens=decode_tokens)


def left_to_bound(eviction: Composed, prompt: int, *, layers: int) -> tuple[int, ...]:
    """What the first policy leaves of a prompt in each layer that is not skipped: there the second one bounds it."""
    skipped, kept = skipped_layers(eviction), kept_by_layer(eviction.first, prompt, layers=layers)
    return tuple(tokens for layer, tokens in enumerate(kept) if layer not in skipped)


def _kept_by_layer(
    eviction: SinglePolicy, context: int, *, layers: int, decode_tokens: int
) -> tuple[int, ...]:
    whole = {layer for layer in skipped_layers(eviction) if layer < layers}
    decoded = 0 if isinstance(eviction, HeavyHitter) else decode_tokens
    if isinstance(eviction, Budgeted):
        chosen: Iterator[int] = iter(_budgets(eviction, context - decoded, layers=layers, whole=len(whole)))
    else:
        chosen = repeat(tokens_kept(eviction, context))
        decoded = 0
    return tuple(context if layer in whole else next(chosen) + decoded for layer in range(layers))


def largest_fraction(eviction: SinglePolicy, layers: int) -> float:
    """No larger share can leave, over all layers, while those that are skipped keep everything."""
    return 1 - len(skipped_layers(eviction)) / layers


def _budget(eviction: Budgeted, tokens: int) -> int:
    """What a budget leaves of `tokens`; a share is rounded down, and one token always stays, if there is one."""
    if eviction.evicted_fraction is not None:
        kept = round(tokens * (1 - eviction.evicted_fraction), 6)  # 60 x (1 - 0.8) is 11.999...98 in binary
        return min(tokens, max(1, int(kept)))
    return min(tokens, eviction.budget_tokens or tokens)


def _budgets(eviction: Budgeted, prompt: int, *, layers: int, whole: int) -> tuple[int, ...]:
    """What stays of a prompt in each layer that the policy governs; `whole` others keep all of it."""
    governed = layers - whole
    total = governed * _budget(eviction, prompt)
    if eviction.evicted_fraction is not None:
        total = max(governed * min(prompt, 1), layers * _budget(eviction, prompt) - whole * prompt)
    if isinstance(eviction, PyramidKv):
        window = min(eviction.observation_window, prompt)
        if total > governed * window:
            beyond = _falling(total - governed * window, limit=prompt - window, layers=governed)
            return tuple(window + budget for budget in beyond)
    return tuple(total // governed + (layer < total % governed) for layer in range(governed))


def _falling(total: int, *, limit: int, layers: int) -> tuple[int, ...]:
    """Budgets that fall linearly from the lowest to the highest layer, none above `limit`, and add up to `total`.

    The highest layer has the mean / `PYRAMID_STEEPNESS`, the lowest what makes the mean right; where that is more than
    there is, the highest has more (Cai et al. 2024, PyramidKV, section 4.2).
    """
    mean = Fraction(total, layers)
    lowest = min(mean * (2 - Fraction(1, PYRAMID_STEEPNESS)), Fraction(limit)) if layers > 1 else mean
    step = 2 * (lowest - mean) / max(layers - 1, 1)
    budgets = [int(lowest - step * layer) for layer in range(layers)]
    left_over = total - sum(budgets)  # of rounding down; the lower layers get one more each
    for layer in [layer for layer, budget in enumerate(budgets) if budget < limit][:left_over]:
        budgets[layer] += 1
    return tuple(budgets)
