"""The memory account: what a cache takes on a device, and how many sequences fit.

A sequence's cache is the sum over groups of like layers of (tokens that stay x bits per token), rounded up to whole
blocks where the engine pages; recent tokens in full precision cost what they cost in 16 bits. What stays of a sequence
is what the eviction policy keeps, and in layers with a window at most that. docs/memory.md has the formulas.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from gatekeeper.domain.accelerators import DeviceName, memory_bytes
from gatekeeper.domain.base import Closed, NonNegativeInt, Number, PositiveInt
from gatekeeper.domain.change import Name
from gatekeeper.domain.eviction import Budgeted, Eviction, NoEviction, TopK, single_policies
from gatekeeper.domain.kv_budget import kept_by_layer
from gatekeeper.domain.kv_config import Kivi, NoQuantization, Quantization, TurboQuant
from gatekeeper.domain.kv_memory import (
    GIB,
    LayerGroup,
    ModelShape,
    kv_bytes_per_token,
    layers_in_16_bits,
    token_bits,
)
from gatekeeper.domain.kv_storage import full_precision_tokens

DEFAULT_MEMORY_SHARE: Final = 0.92
"""vLLM's own `gpu_memory_utilization` (0.32)."""

Gib = Annotated[Number, Field(gt=0, le=1_000_000)]


class MemoryQuestion(Closed):
    """A load of equal sequences on one device, or on `devices` of a kind with tensor parallelism.

    `context`: tokens of a whole sequence, the last `decode_tokens` of them decoded, which matters for policies that
    compress the prompt only. `device`: one that `accelerators` names, or its memory as `memory_gib`.
    `weights_gib`: in place of two bytes per parameter. `overhead_gib`: activations, graphs and what else the engine
    needs on a device.
    """

    quantization: Quantization = NoQuantization()
    eviction: Eviction = NoEviction()
    block_size: PositiveInt | None = None
    context: PositiveInt
    decode_tokens: NonNegativeInt = 0
    concurrency: PositiveInt = 1
    device: DeviceName | None = None
    memory_gib: Gib | None = None
    devices: PositiveInt = 1
    gpu_memory_utilization: Annotated[Number, Field(gt=0, le=1)] = DEFAULT_MEMORY_SHARE
    weights_gib: Gib | None = None
    overhead_gib: Annotated[Number, Field(ge=0, le=1_000_000)] = 0.0

    @model_validator(mode="after")
    def _is_about_one_device(self) -> Self:
        if self.device is not None and self.memory_gib is not None:
            raise ValueError("only one of device and memory_gib is allowed")
        if self.decode_tokens >= self.context:
            raise ValueError("decode_tokens: the whole context is longer; allowed: less than context")
        return self

    @property
    def device_bytes(self) -> int | None:
        """The memory of one device; None: none was named."""
        if self.memory_gib is not None:
            return int(self.memory_gib * GIB)
        return None if self.device is None else memory_bytes(self.device)


class MemoryRequest(MemoryQuestion):
    """A question with the model it is about: a registered one, a shape by hand, or a Hugging Face `config.json`."""

    model: Name | None = None
    shape: ModelShape | None = None
    hf_config: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _is_about_one_model(self) -> Self:
        given = [name for name in ("model", "shape", "hf_config") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("exactly one of model, shape and hf_config is needed")
        return self


class MemoryAccount(Closed):
    """The answer, in bytes of all devices together; None: unknown, or not asked.

    `bytes_per_token`: one more token while no window is full; `tokens_kept`: of a sequence, in a layer without a
    window; where layers differ, the mean, and `tokens_kept_by_layer` has each, the lowest first; `pool_tokens`: of
    sequences of this context; `max_concurrency`: whole sequences that fit at once. `full_cache_bytes_per_sequence`: the
    same in 16 bits, nothing evicted; `ratio`: that by `bytes_per_sequence`.
    """

    bytes_per_token: float
    tokens_kept: int
    tokens_kept_by_layer: tuple[int, ...] = ()
    bytes_per_sequence: float
    total_bytes: float
    full_cache_bytes_per_sequence: float
    ratio: float
    weights_bytes: int | None = None
    device_bytes: int | None = None
    pool_bytes: int | None = None
    pool_tokens: int | None = None
    max_concurrency: int | None = None
    fits: bool | None = None
    notes: tuple[str, ...] = ()


def memory_account(shape: ModelShape, question: MemoryQuestion) -> MemoryAccount:
    """Answer a question about a model's cache."""
    per_sequence = sequence_bytes(shape, question)
    full = question.model_copy(update={"quantization": NoQuantization(), "eviction": NoEviction()})
    full_bytes = sequence_bytes(shape, full)
    by_layer = _by_layer(shape, question)
    account = MemoryAccount(
        bytes_per_token=kv_bytes_per_token(shape, question.quantization),
        tokens_kept=sum(by_layer) // len(by_layer),
        tokens_kept_by_layer=by_layer if len(set(by_layer)) > 1 else (),
        bytes_per_sequence=per_sequence,
        total_bytes=per_sequence * question.concurrency,
        full_cache_bytes_per_sequence=full_bytes,
        ratio=full_bytes / per_sequence,
        weights_bytes=weights_bytes(shape, question),
        notes=tuple(_notes(shape, question)),
    )
    return account if question.device_bytes is None else _on_device(question, account)


def weights_bytes(shape: ModelShape, question: MemoryQuestion) -> int | None:
    """The model's weights: as given, or 16 bits per parameter; None where neither is known."""
    if question.weights_gib is not None:
        return int(question.weights_gib * GIB)
    return None if shape.parameters is None else shape.parameters * shape.bytes_per_element


def _on_device(question: MemoryQuestion, account: MemoryAccount) -> MemoryAccount:
    """Add the pool, which is what weights and overhead leave, and what fits into it."""
    devices, memory = question.devices, question.device_bytes or 0
    usable = memory * question.gpu_memory_utilization - question.overhead_gib * GIB
    pool = max(0, int(usable * devices - (account.weights_bytes or 0)))
    stored = account.bytes_per_sequence
    fitting = int(pool // stored)
    return account.model_copy(
        update={
            "device_bytes": memory * devices,
            "pool_bytes": pool,
            "pool_tokens": int(pool / stored * question.context),
            "max_concurrency": fitting,
            "fits": fitting >= question.concurrency,
        }
    )


def sequence_bytes(shape: ModelShape, question: MemoryQuestion) -> float:
    """The bytes of one sequence, over all devices: what cannot be split among them is there several times."""
    return sum(
        _group_bytes(shape, group, question.model_copy(update={"quantization": scheme}), kept)
        * _copies(group, question.devices)
        for group, scheme, kept in _parts(shape, question)
    )


def _by_layer(shape: ModelShape, question: MemoryQuestion) -> tuple[int, ...]:
    return kept_by_layer(
        question.eviction, question.context, layers=shape.layers, decode_tokens=question.decode_tokens
    )


def _parts(shape: ModelShape, question: MemoryQuestion) -> Iterator[tuple[LayerGroup, Quantization, int]]:
    """Layers that store alike and keep as many tokens: with how, and with that number.

    A shape does not say which layers of a hybrid model are the others, so there schemes and policies that tell layers
    apart count with their mean.
    """
    by_layer = _by_layer(shape, question)
    if not shape.is_uniform:
        mean = sum(by_layer) // len(by_layer)
        yield from ((group, question.quantization, mean) for group in shape.groups)
        return
    plain = layers_in_16_bits(shape, question.quantization)
    alike = Counter((kept, layer in plain) for layer, kept in enumerate(by_layer))
    for (kept, is_plain), layers in alike.items():
        scheme = NoQuantization() if is_plain else question.quantization
        yield replace(shape.groups[0], layers=layers), scheme, kept


def _copies(group: LayerGroup, devices: int) -> float:
    """How often each vector is stored under tensor parallelism: heads are shared out, one head cannot be."""
    return max(1.0, devices / (1 if group.is_latent else group.heads))


def _group_bytes(shape: ModelShape, group: LayerGroup, question: MemoryQuestion, kept: int) -> float:
    tokens, block = group.tokens(kept), question.block_size or 1
    places = math.ceil(tokens / block) * block
    native_bits = 8 * shape.bytes_per_element
    bits = (
        group.token_bits(question.quantization, native_bits=native_bits)
        if shape.is_uniform
        else token_bits(shape, group, question.quantization)
    )
    quantized = places * bits / 8
    keys, values = full_precision_tokens(question.quantization, tokens)
    if not keys and not values:
        return quantized
    vectors = group.layers * group.heads
    full = vectors * native_bits * (keys * group.key_dim + values * group.value_dim) / 8
    return quantized + full - _waiting_bytes(group, question.quantization, keys=keys, values=values)


def _waiting_bytes(group: LayerGroup, quantization: Quantization, *, keys: int, values: int) -> float:
    """What the tokens that are still in full precision would take if they were quantized already."""
    by_key = LayerGroup(layers=group.layers, heads=group.heads, key_dim=group.key_dim, value_dim=0)
    by_value = LayerGroup(layers=group.layers, heads=group.heads, key_dim=0, value_dim=group.value_dim)
    bits = keys * by_key.token_bits(quantization, native_bits=16)
    return (bits + values * by_value.token_bits(quantization, native_bits=16)) / 8


def _notes(shape: ModelShape, question: MemoryQuestion) -> Iterator[str]:
    """What the figures do not say by themselves."""
    if shape.uncached_layers:
        yield (
            f"{shape.uncached_layers} of {shape.layers} layers have no cache of their own: they read another's, or "
            "keep a state of fixed size, which is not counted"
        )
    if shape.window_layers:
        yield f"{shape.window_layers} of {shape.layers} layers keep the last {shape.window:,} tokens only"
    yield from _eviction_notes(shape, question)
    if isinstance(question.quantization, Kivi) and question.quantization.residual_length:
        yield f"up to {question.quantization.residual_length} recent tokens are in full precision"
    if isinstance(question.quantization, TurboQuant) and not shape.uncached_layers:
        yield "vLLM keeps the first and the last two layers in 16 bits"
    if question.device_bytes is None:
        return
    if weights_bytes(shape, question) is None:
        yield "the size of the weights is not known and was not given, so they are counted as nothing"
    if not question.overhead_gib:
        yield "activations and graphs are counted as nothing"


def _eviction_notes(shape: ModelShape, question: MemoryQuestion) -> Iterator[str]:
    by_layer = _by_layer(shape, question)
    if min(by_layer) < max(by_layer):
        mean = (
            "" if shape.is_uniform else "; counted with their mean, since layers of this model differ anyway"
        )
        yield f"layers keep from {min(by_layer):,} to {max(by_layer):,} tokens{mean}"
    parts = [part for _, part in single_policies(question.eviction)]
    if any(isinstance(part, Budgeted) for part in parts):
        yield "while the prompt is read its whole cache is there, before it is compressed"
    if any(isinstance(part, TopK) for part in parts):
        yield "top-k attention reads fewer tokens and frees none"
