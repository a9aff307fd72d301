"""How keys or values are written down: tensors in, stored tensors out, and back.

Every tensor has tokens in its next to last dimension and a head's channels in the last, so stored tensors grow by
concatenation there. Codes are packed, so that `nbytes` of what is stored is what the scheme takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

import torch

Stored: TypeAlias = tuple[torch.Tensor, ...]

NF4_LEVELS: Final = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""Quantiles of the normal distribution, with an exact zero (Dettmers et al. 2023, QLoRA, appendix E)."""

SMALLEST_SCALE: Final = 1e-8


class Codec(Protocol):
    """One way of storing. Encoding a token depends on no other token, unless `tokens_per_group` exceeds 1."""

    @property
    def tokens_per_group(self) -> int:
        """Tokens that share a scale and are encoded together."""
        ...

    def encode(self, x: torch.Tensor) -> Stored:
        """Encode [..., tokens, channels]; tokens are a multiple of `tokens_per_group`."""
        ...

    def decode(self, stored: Stored) -> torch.Tensor:
        """Return [..., tokens, channels] in float32."""
        ...


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Store as another floating-point type, saturating at its largest value, with a scale of 1."""

    dtype: torch.dtype
    tokens_per_group: int = 1

    def encode(self, x: torch.Tensor) -> Stored:
        """Round to nearest."""
        largest = torch.finfo(self.dtype).max
        return (x.clamp(-largest, largest).to(self.dtype),)

    def decode(self, stored: Stored) -> torch.Tensor:
        """Widen."""
        return stored[0].float()


@dataclass(frozen=True, kw_only=True)
class AbsMaxInt8:
    """8-bit integers from -127 to 127 with one float32 scale per token and head: the largest magnitude / 127."""

    tokens_per_group: int = 1

    def encode(self, x: torch.Tensor) -> Stored:
        """Round to nearest, ties to even."""
        scale = (x.float().abs().amax(-1, keepdim=True) / 127).clamp(min=SMALLEST_SCALE)
        return (x.float() / scale).round().to(torch.int8), scale

    def decode(self, stored: Stored) -> torch.Tensor:
        """Multiply by the scale."""
        codes, scale = stored
        return codes.float() * scale


@dataclass(frozen=True, kw_only=True)
class Affine:
    """Unsigned integers between a group's smallest and largest value, which a float16 scale and offset record.

    `along` channels: `group_size` channels of one token and head share them; along tokens: as many tokens of one
    channel do, as KIVI does it for keys (Liu et al. 2024).
    """

    bits: int
    group_size: int
    along: Literal["channels", "tokens"]

    @property
    def tokens_per_group(self) -> int:
        """Groups of tokens are encoded whole."""
        return self.group_size if self.along == "tokens" else 1

    def encode(self, x: torch.Tensor) -> Stored:
        """Round to the nearest of 2**bits evenly spaced values, as the stored scale and offset have them."""
        dim = -2 if self.along == "tokens" else -1
        groups = x.float().unflatten(dim, (-1, self.group_size))
        low, high = groups.amin(dim, keepdim=True), groups.amax(dim, keepdim=True)
        levels = 2**self.bits - 1
        scale = ((high - low) / levels).half().clamp(min=torch.finfo(torch.half).tiny)
        offset = low.half()
        codes = ((groups - offset.float()) / scale.float()).round().clamp(0, levels).to(torch.uint8)
        flat = codes.flatten(-3, -2) if dim == -2 else codes.flatten(-2, -1)
        return pack(flat, self.bits), scale.squeeze(dim), offset.squeeze(dim)

    def decode(self, stored: Stored) -> torch.Tensor:
        """Scale and shift every group."""
        packed, scale, offset = stored
        dim = -2 if self.along == "tokens" else -1
        channels = scale.shape[-1] * (1 if dim == -2 else self.group_size)
        groups = unpack(packed, self.bits, channels).float().unflatten(dim, (-1, self.group_size))
        values = groups * scale.float().unsqueeze(dim) + offset.float().unsqueeze(dim)
        return values.flatten(-3, -2) if dim == -2 else values.flatten(-2, -1)


@dataclass(frozen=True, kw_only=True)
class Nf4:
    """4-bit normal floats: the nearest of 16 levels, times the block's largest magnitude in float32 (QLoRA)."""

    block_size: int
    tokens_per_group: int = 1

    def encode(self, x: torch.Tensor) -> Stored:
        """Blocks are runs of channels of one token and head."""
        blocks = x.float().unflatten(-1, (-1, self.block_size))
        largest = blocks.abs().amax(-1, keepdim=True).clamp(min=SMALLEST_SCALE)
        levels = torch.tensor(NF4_LEVELS, device=x.device)
        middles = (levels[1:] + levels[:-1]) / 2
        codes = torch.bucketize((blocks / largest).contiguous(), middles).to(torch.uint8)
        return pack(codes.flatten(-2), 4), largest.squeeze(-1)

    def decode(self, stored: Stored) -> torch.Tensor:
        """Look the levels up."""
        packed, largest = stored
        codes = unpack(packed, 4, largest.shape[-1] * self.block_size).unflatten(-1, (-1, self.block_size))
        levels = torch.tensor(NF4_LEVELS, device=packed.device)
        return (levels[codes.int()] * largest.unsqueeze(-1)).flatten(-2)


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes below 2**bits as bytes, along the last dimension, lowest bits first; the last byte may be part empty."""
    planes = ((codes.unsqueeze(-1) >> torch.arange(bits, device=codes.device)) & 1).flatten(-2)
    planes = torch.nn.functional.pad(planes, (0, -planes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    return (planes << torch.arange(8, device=codes.device)).sum(-1).to(torch.uint8)


def unpack(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """The first `count` codes of each row of bytes."""
    planes = ((packed.unsqueeze(-1) >> torch.arange(8, device=packed.device)) & 1).flatten(-2)
    planes = planes[..., : count * bits].unflatten(-1, (count, bits))
    return (planes << torch.arange(bits, device=packed.device)).sum(-1).to(torch.uint8)
