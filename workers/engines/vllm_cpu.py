"""What vLLM's CPU build needs to be quick on the few cores and old processors of small workers, and not to die there.

Both arms are launched alike, and products of 16-bit matrices are summed in 32 bits either way, so answers stay those of
a 16-bit model. Speed is the speed of this launch; the hardware's name in the report says that products are widened.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

PLUGIN: Final = "gatekeeper_cpu"
"""The name under which `pyproject.toml` registers `register` with vLLM."""

CPU_ARM: Final = "GATEKEEPER_CPU_ARM"
"""Set in the environment of every engine that an arm runs on CPU; without it the plugin leaves vLLM alone."""

FLOAT32_PRODUCTS: Final = "GATEKEEPER_FLOAT32_PRODUCTS"
"""Set in the environment of an engine whose 16-bit weights are multiplied as 32-bit ones."""

FEW_CORES: Final = 4
"""vLLM binds its threads to all cores but one; up to this many, the one that is left out counts."""

ONE_PROCESS: Final = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""Model and scheduler in one process: no worker of its own that imports everything once more and is then polled."""

PACKED_SHAPES: Final = 32
"""How many row counts a layer keeps a compiled product for; vLLM's own layers keep as many."""

VECTORS: Final = frozenset({"avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile", "asimd", "bf16"})
"""Extensions, named as the kernel does, that decide which of vLLM's kernels run."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def vector_extensions() -> frozenset[str]:
    """What the processor has of `VECTORS`."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    return VECTORS & set(flags.group(1).split()) if flags else frozenset()


def needs_float32_products(vectors: frozenset[str]) -> bool:
    """True for x86-64 without instructions for bfloat16, where oneDNN computes it by way of other types.

    Its documentation ("Data Types") lists bfloat16 for x86-64 from AVX-512 on, and as native from AVX512_BF16 on.
    Measured on two cores each, a product of 256 × 576 by 576 × 1536 ran with AVX2 at 15 GFLOP/s in bfloat16 and at 84
    in float32, with AVX-512 alone at 60 and 198; of a single row, bfloat16 was quicker with AVX-512 (0.08 to 0.13 ms).
    """
    return "avx2" in vectors and not vectors & {"avx512_bf16", "amx_bf16"}


def widens_products() -> bool:
    """True where an engine launched from here multiplies in 32 bits: it needs to, and will find the plugin."""
    installed = {point.name for point in importlib.metadata.entry_points(group="vllm.general_plugins")}
    chosen = os.environ.get("VLLM_PLUGINS")
    is_loaded = PLUGIN in installed and (chosen is None or PLUGIN in chosen.split(","))
    return is_loaded and needs_float32_products(vector_extensions())


def variables_for(count: int) -> dict[str, str]:
    """The environment of an arm that has `count` cores."""
    variables = {"OMP_NUM_THREADS": str(count), CPU_ARM: "1"}
    if widens_products():
        variables[FLOAT32_PRODUCTS] = "1"
    return variables | ({"VLLM_CPU_OMP_THREADS_BIND": "nobind"} if count <= FEW_CORES else {})


def executor_flags(count: int) -> tuple[str, ...]:
    """The flags that go with `variables_for`: with nothing to bind, vLLM needs no process for it."""
    return ("--distributed-executor-backend", ONE_PROCESS) if count <= FEW_CORES else ()


def register() -> None:
    """vLLM's plugin hook (`vllm.general_plugins`): it calls this in each of its processes, before it loads a model."""
    if CPU_ARM in os.environ:
        from vllm.v1.worker import cpu_worker

        from workers.engines.vllm_cpu_runner import SeededCPUModelRunner

        cpu_worker.CPUModelRunner = SeededCPUModelRunner
    if FLOAT32_PRODUCTS in os.environ:
        widen_products()


def widen_products() -> None:
    """Have vLLM's linear layers of 16-bit weights multiply in 32 bits."""
    import torch
    from vllm.model_executor.layers import utils

    inherited = utils.dispatch_cpu_unquantized_gemm

    def dispatch(layer: torch.nn.Module, remove_weight: bool) -> None:
        weight = layer.weight
        if isinstance(weight, torch.Tensor) and weight.ndim == 2 and weight.dtype == torch.bfloat16:
            layer.cpu_linear = Float32Linear(weight.detach())
        else:
            inherited(layer, remove_weight)

    utils.dispatch_cpu_unquantized_gemm = dispatch


class Float32Linear:
    """A linear layer of 16-bit input, weights and output that multiplies in 32 bits. `weight`: [out, in].

    oneDNN packs the weights once, MKL's matrix product at every call: on a processor of AMD's with AVX2 that made it
    half as fast for the 8 to 16 rows that decoding has.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        from vllm import _custom_ops

        self._multiply = _custom_ops.onednn_mm
        self._packed = _custom_ops.create_onednn_mm(weight.float().t(), PACKED_SHAPES)

    def __call__(
        self, x: torch.Tensor, _weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`x`: [..., in]. The 16-bit weight that vLLM hands over is the one that was widened."""
        return self._multiply(self._packed, x.float(), None if bias is None else bias.float()).to(x.dtype)
