"""Calibration of KVQuant's datatype: what a model caches of given texts, and the ranges and levels that fit it.

The levels of a layer minimise the sum of weight x (value - nearest level)**2 over its normalised elements that are no
outliers: weighted k-means (Hooper et al. 2024, section 3.3). An element's weight is its Fisher information, the squared
gradient of the text's negative log-likelihood by that element, times the squared width of the range by which the
element was normalised, since that is what an error of one unit comes to.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from gatekeeper.domain.kv_storage import KVQUANT_SPARED
from workers.engines.reference.layers import no_mask
from workers.engines.reference.nuq import token_range
from workers.engines.reference.rotary import Rotary

OBSERVED: Final = "gatekeeper_observed"
"""The name under which transformers knows the attention that shows keys and values."""

BINS: Final = 256
"""The interval from -1 to 1 is cut into so many parts, whose elements go to one level together."""

SMALLEST_REACH: Final = 1e-6


@dataclass(frozen=True, kw_only=True)
class Cached:
    """What one layer caches, keys before rotation, and the gradients of the loss by it: [tokens, heads, channels]."""

    keys: torch.Tensor
    key_gradients: torch.Tensor
    values: torch.Tensor
    value_gradients: torch.Tensor


def observed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    observed: dict[int, tuple[torch.Tensor, torch.Tensor]],
    **_others: Any,
) -> tuple[torch.Tensor, None]:
    """Full causal attention of one sequence that leaves each layer's rotated keys and its values in `observed`."""
    observed[module.layer_idx] = (key, value)
    for tensor in (key, value):
        tensor.retain_grad()
    groups = query.shape[1] // key.shape[1]
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1), is_causal=True,
        scale=scaling,
    )  # fmt: skip
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(OBSERVED, observed_attention)
AttentionMaskInterface.register(OBSERVED, no_mask)


def observe(model: Any, rotary: Rotary, pieces: Sequence[Sequence[int]]) -> list[Cached]:
    """What every layer of a model with the attention above caches of pieces of text, each a sequence of its own."""
    model.requires_grad_(requires_grad=False)
    found = [_observe_one(model, rotary, piece) for piece in pieces]
    return [
        Cached(
            **{name: torch.cat([getattr(part, name) for part in parts]) for name in Cached.__annotations__}
        )
        for parts in zip(*found, strict=True)
    ]


def _observe_one(model: Any, rotary: Rotary, piece: Sequence[int]) -> list[Cached]:
    tokens = torch.tensor([list(piece)], device=model.device)
    embedded = model.get_input_embeddings()(tokens).requires_grad_()
    observed: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    logits = model(inputs_embeds=embedded, use_cache=False, observed=observed).logits
    torch.nn.functional.cross_entropy(logits[0, :-1].float(), tokens[0, 1:], reduction="sum").backward()
    places = torch.arange(len(piece), device=model.device)
    return [
        Cached(
            keys=_by_token(rotary.undo(keys.detach().float(), places)),
            key_gradients=_by_token(rotary.undo(keys.grad.float(), places)),
            values=_by_token(values.detach().float()),
            value_gradients=_by_token(values.grad.float()),
        )
        for keys, values in (observed[layer] for layer in sorted(observed))
    ]


def _by_token(x: torch.Tensor) -> torch.Tensor:
    """[1, heads, tokens, channels] as [tokens, heads, channels], without the tokens that are never quantized.

    Turned back, the gradient by a turned key is that by the key, up to a factor that all have in common.
    """
    return x[0, :, KVQUANT_SPARED:].transpose(0, 1).cpu()


def fit(
    cached: Sequence[Cached], *, bits: int, outlier_fraction: float, outliers: int
) -> dict[str, torch.Tensor]:
    """Ranges of key channels, [layers, heads, channels], and levels, [layers, 2**bits], of all layers.

    `outliers`: so many elements of a token are kept apart.
    """
    layers = [_fit_layer(layer, bits, outlier_fraction, outliers) for layer in cached]
    return {name: torch.stack([layer[name] for layer in layers]) for name in layers[0]}


def _fit_layer(
    layer: Cached, bits: int, outlier_fraction: float, outliers: int
) -> Mapping[str, torch.Tensor]:
    """A channel's range is that of its elements without the outermost `outlier_fraction`, half at either end."""
    shares = torch.tensor([outlier_fraction / 2, 1 - outlier_fraction / 2])
    low, high = torch.quantile(layer.keys, shares, dim=0)
    middle, reach = (low + high) / 2, ((high - low) / 2).clamp(min=SMALLEST_REACH)
    keys = (layer.keys - middle) / reach
    scale, places = token_range(layer.values.transpose(0, 1)[None], outliers)
    token_middle, token_reach = (part[0, 0, :, :, None] for part in scale.float().split(1, dim=-1))
    values = (layer.values - token_middle) / token_reach
    is_outlier = torch.zeros(values.flatten(1).shape, dtype=torch.bool).scatter(-1, places[0, 0], value=True)
    values = values.masked_fill(is_outlier.view(values.shape), torch.inf)
    return {
        "key_middle": middle,
        "key_reach": reach,
        "key_levels": best_levels(keys, (layer.key_gradients * reach) ** 2, 2**bits),
        "value_levels": best_levels(values, (layer.value_gradients * token_reach) ** 2, 2**bits),
    }


def best_levels(values: torch.Tensor, weights: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` levels of least weighted squared error for the values between -1 and 1, ascending.

    In one dimension k-means has an exact solution: clusters are intervals, and the best end of the last of k of them
    follows from the best ends of k - 1 (Wang and Song 2011, Ckmeans.1d.dp). Here the elements are whole bins.
    """
    inside = values.abs() <= 1
    x, weight = values[inside].double().numpy(), weights[inside].double().numpy()
    bins = np.minimum(((x + 1) * (BINS / 2)).astype(int), BINS - 1)
    mass, moment, square = (
        np.concatenate(([0.0], np.bincount(bins, weights=part, minlength=BINS).cumsum()))
        for part in (weight, weight * x, weight * x * x)
    )
    cost = _interval_costs(mass, moment, square)
    best, ends = cost[0], []
    for _ in range(count - 1):
        total = best[:, None] + cost
        ends.append(total.argmin(axis=0))
        best = total.min(axis=0)
    edges = [BINS]
    for end in reversed(ends):
        edges.append(int(end[edges[-1]]))
    edges = [0, *reversed(edges)]
    return torch.tensor([_centre(mass, moment, a, b) for a, b in itertools.pairwise(edges)])


def _interval_costs(mass: np.ndarray, moment: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Weighted squared error of bins a to b with one level: [a, b], infinite unless a < b."""
    weight, first, second = (part[None, :] - part[:, None] for part in (mass, moment, square))
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(weight > 0, second - first**2 / weight, 0.0)
    return np.where(np.tri(BINS + 1, dtype=bool), np.inf, np.maximum(cost, 0.0))


def _centre(mass: np.ndarray, moment: np.ndarray, a: int, b: int) -> float:
    """The weighted mean of bins a to b, or their middle where nothing has weight."""
    weight = mass[b] - mass[a]
    return float((moment[b] - moment[a]) / weight) if weight > 0 else (a + b) / BINS - 1
