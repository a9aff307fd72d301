"""TensorRT-LLM's server. Its argv and reading are tested on documented output; it has not run with this project yet.

Sources: `trtllm-serve --help`, and the log lines of its KV cache manager.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gatekeeper.domain.kv_memory import GIB
from gatekeeper.domain.plan import ArmPlan
from workers.engines.served import Found, ServedEngine, integer

ALLOCATED: Final = re.compile(
    r"\[MemUsageChange\] Allocated (?P<size>[\d.]+) GiB for max tokens in paged KV cache \((?P<tokens>\d+)\)"
)
DTYPES: Final[Mapping[str, str]] = {"auto": "auto", "fp8": "fp8_e4m3", "nvfp4": "nvfp4"}


def command(plan: ArmPlan, port: int) -> tuple[str, ...]:
    """The program's argv up to what the arm decides. It serves the model under its path's last part."""
    return (
        "trtllm-serve",
        plan.model.source,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--backend",
        "pytorch",
    )


def measured(log: str) -> Found:
    """The last pool: before it, one is allocated to find out how much memory is left."""
    found = list(ALLOCATED.finditer(log))
    if not found or float(found[-1]["size"]) == 0:  # it does not size every pool that it has
        return {}
    tokens = int(found[-1]["tokens"])
    return {
        "kv_cache_slots": tokens,
        "kv_cache_tokens": tokens,
        "kv_cache_bytes": int(float(found[-1]["size"]) * GIB),
    }


def reported(_: Mapping[str, Any], log: str) -> Found:
    """The engine's arguments and limits as it logs them."""
    dtype = re.search(r"kv_cache_config=.*?\bdtype='?(\w+)", log)
    reuse = re.search(r"KV cache block reuse is (enabled|disabled)", log)
    return {
        "cache_dtype": DTYPES.get(dtype.group(1)) if dtype else None,
        "max_model_len": integer(r"\bmax_seq_len=(\d+)", log),
        "max_num_seqs": integer(r"\bmax_batch_size=(\d+)", log),
        "max_num_batched_tokens": integer(r"\bmax_num_tokens=(\d+)", log),
        "block_size": integer(r"Number of tokens per block: (\d+)", log),
        "prefix_caching": reuse.group(1) == "enabled" if reuse else None,
    }


TENSORRT_LLM: Final = ServedEngine(
    name="tensorrt_llm", distribution="tensorrt_llm", command=command, measured=measured, reported=reported,
    variables={},
)  # fmt: skip
