"""A model's rotary position embedding: applied, undone where a method works on what was before it, and averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Channel i turns with channel i + half (Su et al. 2021, RoFormer, as Llama lays it out).

    `module`: positions -> cosines and sines of all channels, with a factor in them where the embedding scales (YaRN).
    """

    module: Any

    def apply(self, plain: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate [..., tokens, channels] to `positions`, [tokens]."""
        cos, sin = self.waves(positions, like=plain)
        return plain * cos + turned(plain) * sin

    def undo(self, rotated: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """What [..., tokens, channels] were before they were rotated to `positions`, [tokens]."""
        cos, sin = self.waves(positions, like=rotated)
        return (rotated * cos - turned(rotated) * sin) / (cos**2 + sin**2)

    def mean_matrix(self, positions: torch.Tensor, *, like: torch.Tensor) -> torch.Tensor:
        """The mean of the matrices that rotate to these positions, [channels, channels]; columns are multiplied."""
        cos, sin = (wave.mean(0) for wave in self.waves(positions, like=like))
        identity = torch.eye(like.shape[-1], device=like.device)
        return (identity * cos + turned(identity) * sin).T

    def waves(self, positions: torch.Tensor, *, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines, [tokens, channels]."""
        cos, sin = self.module(like, positions[None])
        return cos[0].float(), sin[0].float()


def turned(x: torch.Tensor) -> torch.Tensor:
    """A quarter turn: the halves of the channels change places, the second one with its sign changed."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)
