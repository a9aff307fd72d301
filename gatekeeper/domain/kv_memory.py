"""Bytes that a KV cache takes, from the model's attention geometry.

Formula: bytes per token = sum over layers of (KV heads x (key dim + value dim) x bytes per element); a model with
multi-head latent attention stores one latent and one rotary part per layer instead. Source: the definition of the cache
(keys and values of every layer); it agrees with vLLM's own `kv_cache_memory_bytes / kv_cache_size_tokens`.
Scales and other metadata are in `kv_storage`, what a policy keeps of a sequence in `kv_account`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from gatekeeper.domain.base import Closed, NonNegativeInt, PositiveInt
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.kv_config import NoQuantization, Quantization, TurboQuant, skipped_layers
from gatekeeper.domain.kv_storage import TURBOQUANT_SKIPPED, vector_bits
from gatekeeper.domain.model_config import MOST_LAYERS, shape_fields

GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerGroup:
    """`layers` layers whose caches are alike: `heads` key and value vectors per token, of the last `window` tokens.

    A latent cache is one key vector, shared by all heads. `window` None: of all tokens.
    """

    layers: int
    heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    is_latent: bool = False

    @property
    def elements(self) -> int:
        """Cached elements of one token."""
        return self.layers * self.heads * (self.key_dim + self.value_dim)

    def token_bits(self, quantization: Quantization, *, native_bits: int) -> float:
        """Bits of one token in all layers of the group, metadata included."""
        bits = vector_bits(
            quantization,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            kv_heads=self.heads,
            native_bits=native_bits,
        )
        return self.layers * self.heads * (bits.key + bits.value)

    def tokens(self, kept: int) -> int:
        """How many of a sequence's tokens the group holds, when the policy keeps `kept`."""
        return kept if self.window is None else min(kept, self.window)


class ModelShape(Closed):
    """The attention geometry of a model. `latent_dim` > 0 means multi-head latent attention.

    Hybrid models: of `layers`, `window_layers` cache the last `window` tokens only, and `uncached_layers` nothing of
    their own (they read another layer's cache, or keep a recurrent state). `global_…`: of the layers without a window,
    where they differ; `value_dim`: where values are not as wide as keys. 0: does not apply.
    """

    layers: Annotated[PositiveInt, Field(le=MOST_LAYERS)]
    attention_heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    latent_dim: NonNegativeInt = 0
    rope_dim: NonNegativeInt = 0
    value_dim: NonNegativeInt = 0
    window_layers: NonNegativeInt = 0
    window: NonNegativeInt = 0
    uncached_layers: NonNegativeInt = 0
    global_kv_heads: NonNegativeInt = 0
    global_head_dim: NonNegativeInt = 0
    max_context: PositiveInt
    bytes_per_element: PositiveInt = 2
    parameters: int | None = None
    """Of the whole model; None: not known."""
    checkpoint_kv_scheme: str | None = None
    """What the checkpoint itself says its cache is to be quantized to; None: it leaves that to the engine."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.window_layers + self.uncached_layers > self.layers:
            raise ValueError("window_layers and uncached_layers are more than layers")
        if bool(self.window) != bool(self.window_layers):
            raise ValueError("window and window_layers need each other")
        if self.attention_heads % self.kv_heads:
            raise ValueError(
                f"kv_heads {self.kv_heads} does not divide attention_heads {self.attention_heads}"
            )
        return self

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The layers that have a cache of their own."""
        unbounded = self.layers - self.window_layers - self.uncached_layers
        parts = ((unbounded, None), (self.window_layers, self.window))
        return tuple(self._group(layers, window) for layers, window in parts if layers)

    def _group(self, layers: int, window: int | None) -> LayerGroup:
        if self.latent_dim:
            width = self.latent_dim + self.rope_dim
            return LayerGroup(
                layers=layers, heads=1, key_dim=width, value_dim=0, window=window, is_latent=True
            )
        heads, key_dim = self.kv_heads, self.head_dim
        if window is None:
            heads, key_dim = self.global_kv_heads or heads, self.global_head_dim or key_dim
        return LayerGroup(
            layers=layers, heads=heads, key_dim=key_dim, value_dim=self.value_dim or key_dim, window=window
        )

    @property
    def is_uniform(self) -> bool:
        """True if every layer caches the same of the same tokens, so that one figure describes a pool's token."""
        return len(self.groups) == 1 and not self.uncached_layers

    @property
    def elements_per_token(self) -> int:
        """Cached elements of one token over all layers."""
        return sum(group.elements for group in self.groups)

    @classmethod
    def from_hf_config(cls, config: Mapping[str, Any]) -> ModelShape:
        """Read a Hugging Face `config.json` (multimodal ones: their `text_config`). Raises InvalidInput."""
        try:
            return cls(**shape_fields(config))
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else repr(error)
            problem = f"not a decoder's config.json: {said}"
            raise InvalidInput([FieldProblem(field="model config", problem=problem)]) from error


def token_bits(shape: ModelShape, group: LayerGroup, quantization: Quantization) -> float:
    """Bits of one token in all layers of a group; layers in 16 bits are taken to be spread evenly over groups."""
    native_bits = 8 * shape.bytes_per_element
    quantized = group.token_bits(quantization, native_bits=native_bits)
    skipped = len(layers_in_16_bits(shape, quantization))
    if not skipped:
        return quantized
    plain = group.token_bits(NoQuantization(), native_bits=native_bits)
    return (quantized * (shape.layers - skipped) + plain * skipped) / shape.layers


def layers_in_16_bits(shape: ModelShape, quantization: Quantization) -> frozenset[int]:
    """Those that the scheme is told to skip; of TurboQuant also the first and last two, except in hybrid models."""
    told = frozenset(layer for layer in skipped_layers(quantization) if layer < shape.layers)
    if not isinstance(quantization, TurboQuant) or shape.uncached_layers:
        return told
    ends = min(TURBOQUANT_SKIPPED, shape.layers // 2)
    return told | {*range(ends), *range(shape.layers - ends, shape.layers)}


def kv_bytes_per_token(shape: ModelShape, quantization: Quantization) -> float:
    """Return the bytes that one more cached token takes, over all layers, while no window is full.

    Tokens that KIVI still holds in full precision are not in it: of a long sequence they are the small part.
    """
    return sum(token_bits(shape, group, quantization) for group in shape.groups) / 8
