"""KVQuant's datatype: calibrated levels for normalised values, and the most extreme values of a token kept apart.

After Hooper et al. 2024 (KVQuant). A vector is what one layer keeps of one token over all its KV heads. Keys, not yet
rotated, are normalised by a range per channel that was calibrated beforehand; values by a range of their own token.
Codes name one of 2**bits levels between -1 and 1, calibrated per layer, which need not be evenly spaced. The vector's
`outliers` most extreme elements are kept as they are, a 16-bit value and a 16-bit index each. Their number is the
same for every token, so that every token takes the same bytes; the paper's bound on the average is the authors' cap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from workers.engines.reference.codecs import Stored, pack, unpack
from workers.engines.reference.rotary import Rotary, tried_rotary

SIXTEEN_BIT_FLOAT: Final = torch.float16
GROWING_ROPE: Final = ("dynamic", "longrope")
"""Rotary embeddings whose angles change with the length of the sequence."""


@dataclass(frozen=True, kw_only=True)
class NuqKeys:
    """Keys before rotation. `middle`, `reach`: centre and half width of each channel's range, [heads, 1, channels].

    `levels`: ascending, [2**bits].
    """

    bits: int
    outliers: int
    levels: torch.Tensor
    middle: torch.Tensor
    reach: torch.Tensor
    tokens_per_group: int = 1

    def encode(self, x: torch.Tensor) -> Stored:
        """Codes per head, then values and indices of what lies furthest out of its channel's range, per token."""
        normal = (x.float() - self.middle) / self.reach
        places = over_heads(normal).abs().topk(self.outliers, dim=-1).indices
        codes = nearest(normal, self.levels)
        return pack(codes, self.bits), *apart(x, places)

    def decode(self, stored: Stored) -> torch.Tensor:
        """Look the levels up, widen them to their channel's range, put the outliers back."""
        packed, kept, places = stored
        codes = unpack(packed, self.bits, self.middle.shape[-1])
        return put_back(self.levels[codes.int()] * self.reach + self.middle, kept, places)


@dataclass(frozen=True, kw_only=True)
class NuqValues:
    """Values, each token with a centre and half width of its own in 16 bits. `levels`: ascending, [2**bits]."""

    bits: int
    outliers: int
    levels: torch.Tensor
    channels: int
    tokens_per_group: int = 1

    def encode(self, x: torch.Tensor) -> Stored:
        """Codes per head; then range, and values and indices of what lies furthest from the median, per token."""
        scale, places = token_range(x, self.outliers)
        middle, reach = scale.float().split(1, dim=-1)
        codes = nearest((x.float() - middle) / reach, self.levels)
        return pack(codes, self.bits), scale, *apart(x, places)

    def decode(self, stored: Stored) -> torch.Tensor:
        """Look the levels up, widen them to their token's range, put the outliers back."""
        packed, scale, kept, places = stored
        middle, reach = scale.float().split(1, dim=-1)
        codes = unpack(packed, self.bits, self.channels)
        return put_back(self.levels[codes.int()] * reach + middle, kept, places)


def token_range(x: torch.Tensor, outliers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of [1, heads, tokens, channels]: centre and half width of each token without its outliers, and their places.

    [1, 1, tokens, 2] in 16 bits, and [1, 1, tokens, outliers].
    """
    flat = over_heads(x.float())
    places = (flat - flat.median(-1, keepdim=True).values).abs().topk(outliers, dim=-1).indices
    low = flat.scatter(-1, places, math.inf).amin(-1, keepdim=True)
    high = flat.scatter(-1, places, -math.inf).amax(-1, keepdim=True)
    reach = ((high - low) / 2).to(SIXTEEN_BIT_FLOAT).clamp(min=torch.finfo(SIXTEEN_BIT_FLOAT).tiny)
    return torch.cat((((low + high) / 2).to(SIXTEEN_BIT_FLOAT), reach), dim=-1), places


def nearest(normal: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    """The index of the level nearest to each value."""
    return torch.bucketize(normal.contiguous(), (levels[1:] + levels[:-1]) / 2).to(torch.uint8)


def over_heads(x: torch.Tensor) -> torch.Tensor:
    """[1, heads, tokens, channels] as one vector per token: [1, 1, tokens, heads x channels]."""
    return x.transpose(1, 2).flatten(2).unsqueeze(1)


def apart(x: torch.Tensor, places: torch.Tensor) -> Stored:
    """Values and indices of outliers, in 16 bits each."""
    return over_heads(x).gather(-1, places).to(SIXTEEN_BIT_FLOAT), places.to(torch.int16)


def put_back(x: torch.Tensor, kept: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """[1, heads, tokens, channels] with the outliers in it."""
    flat = over_heads(x).scatter(-1, places.long(), kept.float())
    return flat.squeeze(1).unflatten(-1, (x.shape[1], x.shape[3])).transpose(1, 2)


def steady_rotary(model: Any) -> Rotary:
    """The model's rotary embedding, tried. Raises ValueError where a key can't be turned back by its position alone."""
    rope = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type")
    if rope in GROWING_ROPE:
        raise ValueError(
            f"KVQuant stores keys before rotation, and {rope} rotates by the length of the sequence"
        )
    rotary: Rotary = tried_rotary(model)
    return rotary


@dataclass(frozen=True, kw_only=True)
class NuqLayer:
    """How one layer stores keys and values, and how its keys are rotated."""

    keys: NuqKeys
    values: NuqValues
    rotary: Rotary


def nuq_layers(
    fitted: Mapping[str, torch.Tensor], rotary: Rotary, *, bits: int, outliers: int
) -> Sequence[NuqLayer]:
    """All layers of a model, from what its calibration fitted."""
    count, _, channels = fitted["key_middle"].shape
    return [
        NuqLayer(
            keys=NuqKeys(
                bits=bits, outliers=outliers, levels=fitted["key_levels"][layer],
                middle=fitted["key_middle"][layer].unsqueeze(1), reach=fitted["key_reach"][layer].unsqueeze(1),
            ),
            values=NuqValues(
                bits=bits, outliers=outliers, levels=fitted["value_levels"][layer], channels=channels
            ),
            rotary=rotary,
        )
        for layer in range(count)
    ]  # fmt: skip
