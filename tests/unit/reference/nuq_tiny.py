"""The small random model, calibrated for KVQuant."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gatekeeper.domain.kv_config import KVConfig, KvQuant
from gatekeeper.domain.kv_storage import kvquant_outliers
from tests.unit.reference.tiny import HEAD_DIM, KV_HEADS, model, tokens
from workers.engines.reference.calibration import OBSERVED, Cached, fit, observe
from workers.engines.reference.nuq import NuqLayer, nuq_layers, steady_rotary
from workers.engines.reference.rotary import Rotary
from workers.engines.reference.runner import Runner


def scheme(bits: int, outlier_fraction: float = 0.05) -> KvQuant:
    return KvQuant.model_validate({"scheme": "kvquant", "bits": bits, "outlier_fraction": outlier_fraction})


@functools.cache
def rotary() -> Rotary:
    return steady_rotary(model())


@functools.cache
def observed() -> list[Cached]:
    return observe(model(OBSERVED), rotary(), [tokens(256, seed) for seed in range(1, 5)])


@functools.cache
def fitted(bits: int, outlier_fraction: float = 0.05) -> Mapping[str, torch.Tensor]:
    outliers = kvquant_outliers(scheme(bits, outlier_fraction), width=HEAD_DIM, kv_heads=KV_HEADS)
    return fit(observed(), bits=bits, outlier_fraction=outlier_fraction, outliers=outliers)


def layers(bits: int, outlier_fraction: float = 0.05) -> Sequence[NuqLayer]:
    outliers = kvquant_outliers(scheme(bits, outlier_fraction), width=HEAD_DIM, kv_heads=KV_HEADS)
    return nuq_layers(fitted(bits, outlier_fraction), rotary(), bits=bits, outliers=outliers)


def nuq_runner(
    bits: int,
    *,
    outlier_fraction: float = 0.05,
    eviction: dict[str, Any] | None = None,
    piece: int | None = None,
) -> Runner:
    document = {"quantization": scheme(bits, outlier_fraction), "eviction": eviction or {"policy": "none"}}
    config = KVConfig.model_validate(document)
    return Runner(model=model(), config=config, piece=piece, rows=2, nuq=layers(bits, outlier_fraction))
