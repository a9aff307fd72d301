"""Which models' rotary embeddings can be undone: tried on the model, before a method that needs that relies on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers.cache_utils import Cache

from workers.engines.reference.layers import BatchLayer, SequenceLayer
from workers.engines.reference.policies import KeepAll, Step
from workers.engines.reference.rotary import Rotary
from workers.engines.reference.store import SIXTEEN_BIT, Store

GROWING: Final = ("dynamic", "longrope")
"""Kinds of embeddings whose angles change with the length of the sequence."""
TRIED_PLACES: Final = 8
TOLERANCE: Final = 0.05
"""Of the largest channel. 30 layers in bfloat16 differ by 0.005, and by 0.29 where nothing is undone."""


def tried_rotary(model: Any, *, method: str) -> Rotary:
    """The rotary embedding of a model with our attention, once undoing it has been seen to be right.

    Raises ValueError naming `method`, which needs that, where the model has none, or none that is known here.
    """
    rotary = Rotary(module=getattr(model.base_model, "rotary_emb", None))
    reason = _why_not(model, rotary)
    if reason is not None:
        raise ValueError(
            f"{method} works on what was before rotation, and the rotary embedding of {type(model).__name__}"
            f" can't be undone here: {reason}"
        )
    return rotary


def _why_not(model: Any, rotary: Rotary) -> str | None:
    """A token that comes again and again is the same in every layer, up to rotation, and so are its queries."""
    if rotary.module is None:
        return "there is none that is known"
    kind = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type")
    if kind in GROWING:
        return f"its angles change with the length of the sequence ({kind})"
    places = torch.arange(TRIED_PLACES, device=model.device)
    queries = _queries(model, places)
    cos, _ = rotary.waves(places, like=queries[0])
    if cos.shape[-1] != queries[0].shape[-1]:
        return "it turns only a part of each head's channels"
    for layer, rotated in enumerate(queries):
        plain = rotary.undo(rotated, places)
        if not float((plain - plain[:, :1]).abs().max()) < TOLERANCE * float(plain.abs().max()):
            return f"layer {layer} does not turn channels as Llama does"
    return None


@dataclass(kw_only=True)
class _Watch(KeepAll):
    """Keeps all tokens, and the queries to look at."""

    queries: torch.Tensor | None = None

    def after_step(self, step: Step) -> torch.Tensor | None:
        """Remember."""
        self.queries = step.queries.float()
        return None


@torch.inference_mode()
def _queries(model: Any, places: torch.Tensor) -> Sequence[torch.Tensor]:
    """Of the same token at all places, [heads, places, channels] of each layer.

    It is one of the middle of the vocabulary: the first may stand for padding, which is zero before and after.
    """
    token = model.config.vocab_size // 2
    watches = [_Watch() for _ in range(model.config.num_hidden_layers)]
    stores = ((Store(codec=SIXTEEN_BIT), Store(codec=SIXTEEN_BIT), watch) for watch in watches)
    layers = [
        BatchLayer([SequenceLayer(keys=keys, values=values, policy=watch)]) for keys, values, watch in stores
    ]
    model(
        input_ids=torch.full_like(places, token)[None], position_ids=places[None], past_key_values=Cache(layers=layers),
        use_cache=True, kv_layers=layers, logits_to_keep=1,
    )  # fmt: skip
    return [watch.queries for watch in watches if watch.queries is not None]
