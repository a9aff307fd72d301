"""Bytes that a KV cache takes, from the model's attention geometry.

Formula: bytes per token = sum over layers of (KV heads x (key dim + value dim) x bytes per element); a model with
multi-head latent attention stores one latent and one rotary part per layer instead. Source: the definition of the cache
(keys and values of every layer); it agrees with vLLM's own `kv_cache_memory_bytes / kv_cache_size_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from gatekeeper.domain.base import Closed, NonNegativeInt, PositiveInt
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.kv_config import (
    Fp8,
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

GIB = 2**30


class ModelShape(Closed):
    """The attention geometry of a model. `latent_dim` > 0 means multi-head latent attention."""

    layers: PositiveInt
    attention_heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    latent_dim: NonNegativeInt = 0
    rope_dim: NonNegativeInt = 0
    max_context: PositiveInt
    bytes_per_element: PositiveInt = 2
    checkpoint_kv_scheme: str | None = None
    """What the checkpoint itself says its cache is to be quantized to; None: it leaves that to the engine."""

    @property
    def elements_per_token(self) -> int:
        """Cached elements of one token over all layers."""
        if self.latent_dim:
            return self.layers * (self.latent_dim + self.rope_dim)
        return self.layers * self.kv_heads * 2 * self.head_dim

    @classmethod
    def from_hf_config(cls, config: Mapping[str, Any]) -> ModelShape:
        """Read a Hugging Face `config.json` (multimodal ones: their `text_config`). Raises InvalidInput."""
        text = config.get("text_config", config)
        try:
            heads = int(text["num_attention_heads"])
            return cls(
                layers=int(text["num_hidden_layers"]),
                attention_heads=heads,
                kv_heads=int(text.get("num_key_value_heads") or heads),
                head_dim=int(text.get("head_dim") or int(text["hidden_size"]) // heads),
                latent_dim=int(text.get("kv_lora_rank") or 0),
                rope_dim=int(text.get("qk_rope_head_dim") or 0) if text.get("kv_lora_rank") else 0,
                max_context=int(text["max_position_embeddings"]),
                checkpoint_kv_scheme=checkpoint_kv_scheme(config),
            )
        except (KeyError, TypeError, ValueError) as error:
            problem = f"not a decoder's config.json: {error!r}"
            raise InvalidInput([FieldProblem(field="model config", problem=problem)]) from error


def checkpoint_kv_scheme(config: Mapping[str, Any]) -> str | None:
    """What a checkpoint's `quantization_config` says of its KV cache, in words, or None.

    compressed-tensors writes a `kv_cache_scheme`, ModelOpt a `kv_cache_quant_algo` too, some of it one level deeper.
    """
    for section in (config, config.get("text_config")):
        outer = section.get("quantization_config") if isinstance(section, Mapping) else None
        for level in (outer, outer.get("quantization")) if isinstance(outer, Mapping) else ():
            if not isinstance(level, Mapping):
                continue
            scheme = level.get("kv_cache_scheme")
            if isinstance(scheme, Mapping):
                return f"{scheme.get('num_bits', '?')}-bit {scheme.get('type', '?')}"
            named = level.get("kv_cache_quant_algo") or scheme
            if isinstance(named, str) and named.casefold() not in ("none", "auto"):
                return named
    return None


def bits_per_element(quantization: Quantization, *, head_dim: int, native_bits: int = 16) -> float:
    """Return the stored bits per cached element, scales included.

    Scales are counted as 32 bits per token and head for `int8` and `int4` as vLLM stores them, 16 bits (scale and zero
    point) per group for KIVI, 32 bits per block for NF4, and 8 bits per 16 values for NVFP4.
    """
    match quantization:
        case NoQuantization():
            return native_bits
        case Fp8():
            return 8
        case Int8():
            return 8 + 32 / head_dim
        case Int4(group_size=group):
            return 4 + 32 / (group or head_dim)
        case Nvfp4():
            return 4 + 8 / 16
        case TurboQuant(scheme=scheme):
            return {"turboquant_k8v4": 6.0, "turboquant_4bit_nc": 4.0, "turboquant_k3v4_nc": 3.5}.get(
                scheme, 3.0
            )
        case Nf4(block_size=block):
            return 4 + 32 / block
        case Kivi(bits=bits, group_size=group):
            return bits + 32 / group
        case KvQuant(bits=bits, outlier_fraction=outliers):
            return bits + outliers * (16 + 32)
        case _:
            assert_never(quantization)


def kv_bytes_per_token(shape: ModelShape, quantization: Quantization) -> float:
    """Return the bytes that one more cached token takes, over all layers, without a fixed residual window."""
    bits = bits_per_element(quantization, head_dim=shape.head_dim, native_bits=8 * shape.bytes_per_element)
    return shape.elements_per_token * bits / 8


def kv_pool_bytes(shape: ModelShape, quantization: Quantization, *, context: int, concurrency: int) -> float:
    """Return the bytes that `concurrency` sequences of `context` tokens take."""
    return kv_bytes_per_token(shape, quantization) * context * concurrency
