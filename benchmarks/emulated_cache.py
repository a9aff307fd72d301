"""vLLM's server whose cached keys and values are rounded as a narrower cache would hold them.

vLLM's CPU build stores FP8 only on processors with AVX-512, and no integer cache at all. Rounding each key and value
just before the engine caches it gives the values that every later read of such a cache would see; attention, paging,
scheduling and sampling are the engine's own. The rest of the model computes in 32 bits, so what differs between two of
these servers is the cache alone. What such a server cannot show: memory, speed, and errors of a real FP8 kernel.

    echo fp8_e4m3 > cache; EMULATED_CACHE=cache python benchmarks/emulated_cache.py --model …   # vLLM's arguments

A running server takes the rounding that its file names from the next request on; prefixes that it keeps were rounded
before, so they are to be dropped (`EmulatedCache.take`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.plan import ArmPlan
from workers.engines.base import Server
from workers.engines.vllm import Vllm

VARIABLE: Final = "EMULATED_CACHE"
"""Holds the path of a file with a key of ROUNDINGS."""


class EmulatedCache(Vllm):
    """The product's engine with this server in place of vLLM's own. `chosen`: the file that names the rounding."""

    def __init__(self, chosen: Path) -> None:
        self.chosen = chosen

    def argv(self, plan: ArmPlan, *, port: int) -> tuple[str, ...]:
        """Everything as planned, but 32 bits, and the real cache wide enough to hold any rounded value exactly."""
        flags = list(super().argv(plan, port=port))
        flags[flags.index("--dtype") + 1] = "float32"
        flags[flags.index("--kv-cache-dtype") + 1] = "auto"
        return (flags[0], str(Path(__file__).resolve()), *flags[3:])

    def environment(self, plan: ArmPlan, *, gpu: str | None) -> dict[str, str]:
        """Waiting threads sleep: the machine is shared with the programs that measure. Prefixes can be dropped."""
        chosen = {VARIABLE: str(self.chosen), "OMP_WAIT_POLICY": "passive", "VLLM_SERVER_DEV_MODE": "1"}
        return super().environment(plan, gpu=gpu) | chosen

    def effective(
        self, metrics_text: str, models: Mapping[str, Any], log: str, *, arguments: Collection[str] = ()
    ) -> EffectiveConfig:
        """What is emulated; the pool's size speaks of the 32-bit values that stand for it, so it is left out."""
        seen = super().effective(metrics_text, models, log, arguments=arguments)
        return replace(
            seen, cache_dtype=self.chosen.read_text(), kv_cache_tokens=None, kv_cache_slots=None,
            kv_cache_bytes=None,
        )  # fmt: skip

    def take(self, cache: str, server: Server) -> None:
        """Round as `cache` from here on."""
        self.chosen.write_text(cache)
        server.client.post("/reset_prefix_cache").raise_for_status()


def _sixteen_bit(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16)


def _truncated(
    x: torch.Tensor, *, mantissa_bits: int, smallest_exponent: int, largest: float
) -> torch.Tensor:
    """Toward zero, as vLLM's CPU kernels write FP8 (`float_to_fp8…_scalar` in csrc/cpu/cpu_attn_fp8.hpp)."""
    x = x.float().clamp(-largest, largest)
    kept = (x.view(torch.int32) & -(1 << (23 - mantissa_bits))).view(torch.float32)
    step = 2.0 ** (smallest_exponent - mantissa_bits)  # below the smallest normal number all steps are equal
    return torch.where(x.abs() < 2.0**smallest_exponent, torch.trunc(x / step) * step, kept)


def _nearest(x: torch.Tensor, *, format: torch.dtype) -> torch.Tensor:  # noqa: A002 - the field's word
    """To the nearest value, as GPUs write FP8."""
    largest = torch.finfo(format).max
    return x.float().clamp(-largest, largest).to(format)


def _integers(x: torch.Tensor, *, bits: int) -> torch.Tensor:
    """Symmetric integers with one scale per token and head (the last axis)."""
    largest = 2 ** (bits - 1) - 1
    scale = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-12) / largest
    return torch.round(x / scale) * scale


ROUNDINGS: Final[Mapping[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "bf16": _sixteen_bit,
    "fp8_e4m3": lambda x: _truncated(x, mantissa_bits=3, smallest_exponent=-6, largest=448.0),
    "fp8_e5m2": lambda x: _truncated(x, mantissa_bits=2, smallest_exponent=-14, largest=57344.0),
    "fp8_e4m3-nearest": lambda x: _nearest(x, format=torch.float8_e4m3fn),
    "fp8_e5m2-nearest": lambda x: _nearest(x, format=torch.float8_e5m2),
    "int8": lambda x: _integers(x, bits=8),
    "int4": lambda x: _integers(x, bits=4),
    "int3": lambda x: _integers(x, bits=3),
}
"""What a cache does to keys and values; the last axis holds one head's channels of one token."""


def _install(chosen: Path) -> None:
    """Round keys and values on their way into vLLM's attention layer, whose backend caches them before it reads any."""
    from vllm.model_executor.layers.attention.attention import Attention

    forward = Attention.forward

    def rounded(layer: Any, x: torch.Tensor) -> torch.Tensor:
        rounding = ROUNDINGS[chosen.read_text()]
        by_head = rounding(x.reshape(-1, layer.num_kv_heads, layer.head_size))
        return by_head.to(x.dtype).reshape(x.shape)

    def forward_rounded(layer: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
        return forward(layer, query, rounded(layer, key), rounded(layer, value), *rest, **named)

    Attention.forward = forward_rounded


if (
    VARIABLE in os.environ
):  # at import, because the processes that vLLM spawns import this file and call no main
    _install(Path(os.environ[VARIABLE]))

if __name__ == "__main__":
    import runpy

    sys.argv[0] = "vllm"
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
