"""How many bits a quantized cache takes for one head's key and value vector of one token.

Each figure is the layout of the format itself, metadata included; where the format comes from stands beside it.
docs/memory.md tells the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from gatekeeper.domain.kv_config import (
    Fp8,
    GgmlBlocks,
    GgmlType,
    Int4,
    Int8,
    Kivi,
    KvQuant,
    Nf4,
    NoQuantization,
    Nvfp4,
    Quantization,
    TurboQuant,
)

GGML_BITS: Final[Mapping[GgmlType, float]] = {
    "q8_0": 8.5,
    "q5_1": 6.0,
    "q5_0": 5.5,
    "q4_1": 5.0,
    "q4_0": 4.5,
    "iq4_nl": 4.5,
}
"""Bits per element: blocks of 32 with a 16-bit scale, `_1` with a 16-bit minimum too (ggml's block structures)."""

TURBOQUANT_BITS: Final[Mapping[str, tuple[int, int]]] = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
"""Bits of a key's and of a value's element (vLLM's presets)."""

TURBOQUANT_SKIPPED: Final = 2
"""So many layers at either end vLLM leaves in 16 bits, at most half of them."""

KVQUANT_SPARED: Final = 1
"""So many tokens at the start of a sequence stay in 16 bits: the attention sink (Hooper et al. 2024, section 3.5)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorBits:
    """Bits of one token's key and value vector of one head."""

    key: float
    value: float


def vector_bits(
    quantization: Quantization, *, key_dim: int, value_dim: int, kv_heads: int, native_bits: int
) -> VectorBits:
    """Bits per vector, with scales, zero points, norms and outliers; `kv_heads` share what is kept once per token.

    A latent cache is one key vector without a value. Tokens that KIVI and KVQuant leave in full precision are
    counted by `full_precision_tokens`.
    """

    match quantization:
        case Int8():
            return _per_vector(8, key_dim, value_dim)
        case Int4(group_size=None):
            return _per_vector(4, key_dim, value_dim)
        case Int4(group_size=group):
            per_element = 4 + 32 / (group or key_dim)  # a 16-bit scale and a zero point per group
            return VectorBits(key=key_dim * per_element, value=value_dim * per_element)
        case GgmlBlocks(scheme=keys, values=values):
            return VectorBits(key=key_dim * GGML_BITS[keys], value=value_dim * GGML_BITS[values or keys])
        case TurboQuant(scheme=scheme):
            return _turboquant(scheme, key_dim, value_dim)
        case KvQuant():
            return _kvquant(quantization, key_dim, value_dim, kv_heads)
        case _:
            per_element = _element_bits(quantization, native_bits)
            return VectorBits(key=key_dim * per_element, value=value_dim * per_element)


def _element_bits(quantization: NoQuantization | Fp8 | Nvfp4 | Nf4 | Kivi, native_bits: int) -> float:
    """Bits per element where metadata belongs to blocks of elements."""
    match quantization:
        case NoQuantization():
            return native_bits
        case Fp8():
            return 8  # scales are one per tensor
        case Nvfp4():
            return 4 + 8 / 16  # an FP8 scale per 16 values
        case Nf4(block_size=block):
            return 4 + 32 / block  # a 32-bit absolute maximum per block
        case Kivi(bits=bits, group_size=group):
            return bits + 32 / group  # a 16-bit scale and a zero point per group
        case _:
            assert_never(quantization)


def _kvquant(quantization: KvQuant, key_dim: int, value_dim: int, kv_heads: int) -> VectorBits:
    """An outlier is a 16-bit value and a 16-bit index beside the dense matrix (Hooper et al. 2024, section 3.4).

    Of values, a token has one 16-bit scale and one zero point over all heads; those of keys are calibrated.
    """
    key, value = (
        quantization.bits * width
        + 32 * kvquant_outliers(quantization, width=width, kv_heads=kv_heads) / kv_heads
        for width in (key_dim, value_dim)
    )
    return VectorBits(key=key, value=value + (32 / kv_heads if value_dim else 0))


def kvquant_outliers(quantization: KvQuant, *, width: int, kv_heads: int) -> int:
    """How many elements a layer keeps apart of one token's keys, or of its values, over all heads: whole ones."""
    return math.ceil(round(quantization.outlier_fraction * width * kv_heads, 6))


def _per_vector(bits: int, key_dim: int, value_dim: int) -> VectorBits:
    """One 32-bit scale per token and head; a zero point hides in its low bits (vLLM's `*_per_token_head`)."""
    return VectorBits(key=bits * key_dim + 32, value=bits * value_dim + 32 if value_dim else 0)


def _turboquant(scheme: str, key_dim: int, value_dim: int) -> VectorBits:
    """vLLM packs both vectors of a head into one slot of an even number of bytes.

    Keys of fewer than 8 bits carry a 16-bit norm, values a 16-bit scale and a zero point.
    """
    key_bits, value_bits = TURBOQUANT_BITS[scheme]
    key_bytes = key_dim if key_bits == 8 else math.ceil(key_dim * key_bits / 8) + 2
    value_bytes = math.ceil(value_dim * value_bits / 8) + 4
    return VectorBits(key=8 * key_bytes, value=8 * (value_bytes + (key_bytes + value_bytes) % 2))


def full_precision_tokens(quantization: Quantization, tokens: int) -> tuple[int, int]:
    """How many of a sequence's keys and values are still in 16 bits.

    KIVI quantizes keys `residual_length` at a time, so those since the last multiple wait, and always keeps as many
    values (Liu et al. 2024, section 3 and the authors' implementation). KVQuant never quantizes a sequence's start.
    """
    if isinstance(quantization, KvQuant):
        return min(tokens, KVQUANT_SPARED), min(tokens, KVQUANT_SPARED)
    if isinstance(quantization, Kivi) and quantization.residual_length:
        return tokens % quantization.residual_length, min(tokens, quantization.residual_length)
    return 0, 0
