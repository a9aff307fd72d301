"""How many tokens of a sequence an eviction policy keeps, in all layers alike or layer by layer.

`evicted_fraction` is the share of the prompt's tokens that leave, over all layers; `budget_tokens` is what stays of
them in a layer, the mean where layers differ.
"""

from __future__ import annotations

from typing import Final, assert_never

from gatekeeper.domain.kv_config import (
    Budgeted,
    Eviction,
    ExpectedAttention,
    HeavyHitter,
    NoEviction,
    PrefillSelector,
    PyramidKv,
    SlidingWindow,
    SnapKv,
    StreamingLlm,
    TopK,
)

PYRAMID_STEEPNESS: Final = 20
"""The highest layer gets this part of the mean budget beyond the window (Cai et al. 2024, section 4.2, beta)."""


def tokens_kept(eviction: Eviction, context: int, *, decode_tokens: int = 0) -> int:
    """How many tokens of a sequence stay in a layer without a window of its own; the mean over layers."""
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
    """The same for each of a model's layers, the lowest first; their sum is that of the mean."""
    kept = tokens_kept(eviction, context, decode_tokens=decode_tokens)
    if not isinstance(eviction, PyramidKv):
        return (kept,) * layers
    prompt = context - decode_tokens
    window = min(eviction.observation_window, prompt)
    return tuple(
        window + chosen + decode_tokens
        for chosen in _pyramid(kept - decode_tokens - window, prompt - window, layers)
    )


def _budget(eviction: Budgeted, tokens: int) -> int:
    """What a budget leaves of `tokens`; a share is rounded down, and one token always stays."""
    if eviction.evicted_fraction is not None:
        kept = round(tokens * (1 - eviction.evicted_fraction), 6)  # 60 x (1 - 0.8) is 11.999...98 in binary
        return max(1, int(kept))
    return min(tokens, eviction.budget_tokens or tokens)


def _pyramid(mean: int, limit: int, layers: int) -> tuple[int, ...]:
    """Budgets that fall linearly from the lowest to the highest layer, none above `limit`, with this mean.

    The highest layer has mean / `PYRAMID_STEEPNESS`, the lowest what makes the mean right; where that is more than
    there is, the highest has more (Cai et al. 2024, PyramidKV, section 4.2). A mean of nothing, or less, stays even.
    """
    if mean <= 0 or layers == 1:
        return (mean,) * layers
    lowest = min(2 * mean - mean // PYRAMID_STEEPNESS, limit)
    fall = 2 * lowest - 2 * mean  # from the lowest to the highest
    budgets = [(lowest * (layers - 1) - fall * layer) // (layers - 1) for layer in range(layers)]
    left_over = layers * mean - sum(budgets)  # of rounding down; the lower layers get one more each
    for layer in [layer for layer, budget in enumerate(budgets) if budget < limit][:left_over]:
        budgets[layer] += 1
    return tuple(budgets)
