"""From a KV configuration to cache layers: which codec and which policy each layer gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import torch

from gatekeeper.domain.kv_account import tokens_kept
from gatekeeper.domain.kv_config import (
    Eviction,
    Fp8,
    HeavyHitter,
    Int4,
    Int8,
    Kivi,
    KVConfig,
    KvQuant,
    Nf4,
    NoEviction,
    NoQuantization,
    PrefillSelector,
    Quantization,
    SlidingWindow,
    SnapKv,
    StreamingLlm,
    TopK,
)
from gatekeeper.domain.kv_storage import KVQUANT_SPARED
from workers.engines.reference import codecs, policies
from workers.engines.reference.layers import SequenceLayer
from workers.engines.reference.nuq import NuqLayer
from workers.engines.reference.store import SIXTEEN_BIT, Store

SELECTORS: Final[Mapping[str, tuple[policies.Score, int]]] = {
    "tova": (policies.tova, 1),
    "knorm": (policies.knorm, 1),
    "keydiff": (policies.keydiff, 1),
}
"""Selector -> its score, and how many of the prompt's last queries that looks at."""

FLOAT8: Final[Mapping[str, torch.dtype]] = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


def make_layer(config: KVConfig, *, head_dim: int, nuq: NuqLayer | None = None) -> SequenceLayer:
    """An empty cache layer, with KVQuant by its calibration. Raises ValueError for what this engine does not have."""
    make_keys, make_values = _stores(config.quantization, head_dim, nuq)
    return SequenceLayer(keys=make_keys(), values=make_values(), policy=_policy(config.eviction))


def _stores(
    quantization: Quantization, head_dim: int, nuq: NuqLayer | None
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
            codec = codecs.Affine(bits=4, group_size=size or head_dim, along="channels")
        case Nf4(block_size=size):
            codec = codecs.Nf4(block_size=size)
        case Kivi():
            return _kivi(quantization)
        case KvQuant():
            return _kvquant(nuq)
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


def _kvquant(nuq: NuqLayer | None) -> tuple[Callable[[], Store], Callable[[], Store]]:
    """Keys before rotation per channel, values per token, by levels that were calibrated."""
    if nuq is None:
        raise ValueError("kvquant needs a calibration")
    return (
        lambda: Store(codec=nuq.keys, spared=KVQUANT_SPARED, rotation=nuq.rotation),
        lambda: Store(codec=nuq.values, spared=KVQUANT_SPARED),
    )


def _policy(eviction: Eviction) -> policies.Policy:
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
            return policies.HeavyHitters(budget=partial(tokens_kept, eviction))
        case SnapKv(observation_window=window):
            return policies.Selector(
                budget=partial(tokens_kept, eviction), score=policies.snapkv, observed=window
            )
        case PrefillSelector(policy=name) if name in SELECTORS:
            score, observed = SELECTORS[name]
            return policies.Selector(budget=partial(tokens_kept, eviction), score=score, observed=observed)
        case _:
            raise ValueError(f"the reference engine does not implement {eviction.policy}")
