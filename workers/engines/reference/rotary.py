"""The model's rotary position embedding: undone where a method works on what was before it, and averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import torch
from transformers.cache_utils import Cache

from workers.engines.reference.layers import BatchLayer, SequenceLayer
from workers.engines.reference.policies import KeepAll, Step
from workers.engines.reference.store import SIXTEEN_BIT, Store

TRIED_PLACES: Final = 8
TOLERANCE: Final = 0.02
"""Of the largest channel: what models that compute in 16 bits may differ by."""


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Channel i turns with channel i + half (Su et al. 2021, RoFormer, as Llama lays it out).

    `module`: positions -> cosines and sines of all channels, maybe with a factor that grows with the context.
    """

    module: Any

    @classmethod
    def of(cls, model: Any) -> Self:
        """The embedding of a transformers model. Raises ValueError where there is none that is known."""
        module = getattr(model.base_model, "rotary_emb", None)
        if module is None:
            raise ValueError(f"{type(model).__name__} has no rotary embedding that is known here")
        return cls(module=module)

    def undo(self, rotated: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """What [..., tokens, channels] were before they were rotated to `positions`, [tokens]."""
        cos, sin = self._waves(positions, like=rotated)
        return (rotated * cos - turned(rotated) * sin) / (cos**2 + sin**2)

    def apply(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate [..., tokens, channels] to `positions`, [tokens]."""
        cos, sin = self._waves(positions, like=x)
        return x * cos + turned(x) * sin

    def mean_matrix(self, positions: torch.Tensor, *, like: torch.Tensor) -> torch.Tensor:
        """The mean of the matrices that rotate to these positions, [channels, channels]; columns are multiplied."""
        cos, sin = (wave.mean(0) for wave in self._waves(positions, like=like))
        identity = torch.eye(like.shape[-1], device=like.device)
        return (identity * cos + turned(identity) * sin).T

    def _waves(self, positions: torch.Tensor, *, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = self.module(like, positions[None])
        if cos.shape[-1] != like.shape[-1]:
            raise ValueError("only a part of each head's channels is rotated, which is not known here")
        return cos[0].float(), sin[0].float()


def turned(x: torch.Tensor) -> torch.Tensor:
    """A quarter turn: the halves of the channels change places, the second one with its sign changed."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


@dataclass(kw_only=True)
class _Watch(KeepAll):
    """Keeps all tokens, and the queries to look at."""

    queries: torch.Tensor | None = None

    def after_step(self, step: Step) -> torch.Tensor | None:
        """Remember."""
        self.queries = step.queries.float()
        return None


@torch.inference_mode()
def tried_rotary(model: Any) -> Rotary:
    """The model's rotary embedding, once undoing it has been seen to be right.

    In the lowest layer the same token has the same queries at every place, before they are rotated. Raises ValueError
    where undoing does not give that.
    """
    rotary, watch = Rotary.of(model), _Watch()
    layers = [
        BatchLayer(
            [SequenceLayer(keys=Store(codec=SIXTEEN_BIT), values=Store(codec=SIXTEEN_BIT), policy=watch)]
        )
        for watch in (watch, *(_Watch() for _ in range(model.config.num_hidden_layers - 1)))
    ]
    places = torch.arange(TRIED_PLACES, device=model.device)
    model(
        input_ids=torch.zeros_like(places)[None], position_ids=places[None], past_key_values=Cache(layers=layers),
        use_cache=True, kv_layers=layers, logits_to_keep=1,
    )  # fmt: skip
    assert watch.queries is not None  # the lowest layer was computed
    before = rotary.undo(watch.queries, places)
    if float((before - before[:, :1]).abs().max()) > TOLERANCE * float(before.abs().max()):
        raise ValueError(f"the rotary embedding of {type(model).__name__} is not laid out as Llama's")
    return rotary
