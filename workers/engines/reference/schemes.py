"""From a KV configuration to cache layers: which codec and which policy each layer gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import torch

from gatekeeper.domain.eviction import (
    Composed,
    Eviction,
    ExpectedAttention,
    HeavyHitter,
    NoEviction,
    PerLayer,
    PrefillSelector,
    PyramidKv,
    SinglePolicy,
    SlidingWindow,
    SnapKv,
    StreamingLlm,
    TopK,
    single_policies,
)
from gatekeeper.domain.kv_budget import kept_by_layer
from gatekeeper.domain.kv_config import (
    Fp8,
    Int4,
    Int8,
    Kivi,
    KVConfig,
    KvQuant,
    Nf4,
    NoQuantization,
    Quantization,
    skipped_layers,
)
from gatekeeper.domain.kv_storage import KVQUANT_SPARED
from workers.engines.reference import codecs, expected_attention, policies
from workers.engines.reference.layers import SequenceLayer
from workers.engines.reference.nuq import NuqLayer
from workers.engines.reference.rotary import Rotary
from workers.engines.reference.store import SIXTEEN_BIT, Store

SELECTORS: Final[Mapping[str, tuple[policies.Score, int]]] = {
    "tova": (policies.tova, 1),
    "knorm": (policies.knorm, 1),
    "keydiff": (policies.keydiff, 1),
}
"""Selector -> its score, and how many of the prompt's last queries that looks at."""

FLOAT8: Final[Mapping[str, torch.dtype]] = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """What of a model cache layers have to know.

    `rotary`: where `needs_rotary` names a method; `nuq`: with KVQuant, what was calibrated for each layer.
    """

    layers: int
    head_dim: int
    rotary: Rotary | None = None
    nuq: Sequence[NuqLayer] = ()


def needs_rotary(config: KVConfig) -> str | None:
    """The scheme or the policy that works on what was before rotation, if there is one."""
    if isinstance(config.quantization, KvQuant):
        return config.quantization.scheme
    policies_before = (
        part for _, part in single_policies(config.eviction) if isinstance(part, ExpectedAttention)
    )
    return next((part.policy for part in policies_before), None)


def make_layer(config: KVConfig, geometry: Geometry, *, index: int) -> SequenceLayer:
    """An empty cache for layer `index`, the lowest is 0. Raises ValueError for what this engine does not have."""
    plain = index in skipped_layers(config.quantization)
    scheme = NoQuantization() if plain else config.quantization
    make_keys, make_values = _stores(scheme, geometry, index)
    policy = _policy(config.eviction, geometry, index)
    return SequenceLayer(keys=make_keys(), values=make_values(), policy=policy)


def _stores(
    quantization: Quantization, geometry: Geometry, index: int
) -> tuple[Callable[[], Store], Callable[[], Store]]:
    """Makers of the stores for keys and for values."""
    match quantization:
        case NoQuantization():
            codec: codecs.Codec = SIXTEEN_BIT
        case Fp8(scheme=scheme, scales="unit"):
            codec = codecs.Cast(dtype=FLOAT8[scheme])
        case Int8():
            codec = codecs.AbsMaxInt8()
        case Int4(group_size=size):
            codec = codecs.Affine(bits=4, group_size=size or geometry.head_dim, along="channels")
        case Nf4(block_size=size):
            codec = codecs.Nf4(block_size=size)
        case Kivi():
            return _kivi(quantization)
        case KvQuant():
            return _kvquant(geometry, index)
        case _:
            raise ValueError(f"the reference engine has no KV cache for {quantization.scheme}")
    return (lambda: Store(codec=codec)), (lambda: Store(codec=codec))


def _kivi(kivi: Kivi) -> tuple[Callable[[], Store], Callable[[], Store]]:
    """Keys per channel, once a residual's length of them has come; values per token, the newest held back."""
    per_channel = codecs.Affine(bits=kivi.bits, group_size=kivi.group_size, along="tokens")
    per_token = codecs.Affine(bits=kivi.bits, group_size=kivi.group_size, along="channels")
    lump = kivi.residual_length or kivi.group_size
    return (
        lambda: Store(codec=per_channel, lump=lump),
        lambda: Store(codec=per_token, held_back=kivi.residual_length),
    )


def _kvquant(geometry: Geometry, index: int) -> tuple[Callable[[], Store], Callable[[], Store]]:
    """Keys before rotation per channel, values per token, by levels that were calibrated."""
    if not geometry.nuq:
        raise ValueError("kvquant needs a calibration")
    assert geometry.rotary is not None  # `needs_rotary` said so
    layer, rotary = geometry.nuq[index], geometry.rotary
    return (
        lambda: Store(codec=layer.keys, spared=KVQUANT_SPARED, rotary=rotary),
        lambda: Store(codec=layer.values, spared=KVQUANT_SPARED),
    )


def _policy(eviction: Eviction, geometry: Geometry, index: int) -> policies.Policy:
    """What decides about the tokens of layer `index`."""
    if index in skipped_layers(eviction):
        return policies.KeepAll()
    match eviction:
        case PerLayer():
            alike = eviction.by_policy(geometry.layers)
            group, part = next((group, part) for group, part in alike if index in group)
            return _single(part, geometry, layers=len(group), index=group.index(index))
        case Composed(decode=decode):
            first = _single(eviction.first, geometry, layers=geometry.layers, index=index)
            bound = _single(decode, geometry, layers=geometry.layers, index=index)
            assert isinstance(first, policies.HeavyHitters | policies.Selector)  # its type says so
            assert isinstance(bound, policies.Window)
            return policies.InTurn(prompt=first, decode=bound)
        case _:
            return _single(eviction, geometry, layers=geometry.layers, index=index)


def _single(eviction: SinglePolicy, geometry: Geometry, *, layers: int, index: int) -> policies.Policy:
    """The policy of one of `layers` layers, the lowest is 0, that have this one."""

    def budget(prompt_tokens: int) -> int:
        return kept_by_layer(eviction, prompt_tokens, layers=layers)[index]

    match eviction:
        case NoEviction():
            return policies.KeepAll()
        case SlidingWindow(window=window):
            return policies.Window(sinks=0, window=window)
        case StreamingLlm(sinks=sinks, window=window):
            return policies.Window(sinks=sinks, window=window)
        case TopK(k=k):
            return policies.TopK(keys_per_query=k)
        case HeavyHitter():
            return policies.HeavyHitters(budget=budget)
        case SnapKv(observation_window=window) | PyramidKv(observation_window=window):
            return policies.Selector(budget=budget, score=policies.snapkv, observed=window)
        case ExpectedAttention(future_tokens=future):
            assert geometry.rotary is not None  # `needs_rotary` said so
            score = expected_attention.ExpectedAttention(rotary=geometry.rotary, future_tokens=future)
            return policies.Selector(budget=budget, score=score, observed=None)
        case PrefillSelector(policy=name):
            chosen, observed = SELECTORS[name]
            return policies.Selector(budget=budget, score=chosen, observed=observed)
        case _:
            assert_never(eviction)
