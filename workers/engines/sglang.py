"""SGLang's server. Its argv and reading are tested on documented output; it has not run with this project yet.

Sources: `python -m sglang.launch_server --help`, the log lines of its memory pool and of its scheduler. "GB" there is
2^30 bytes, to two decimals.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from gatekeeper.domain.kv_memory import GIB
from gatekeeper.domain.plan import ArmPlan
from workers.engines.served import Found, ServedEngine, integer, served_length

STORED: Final[Mapping[str, tuple[str, str]]] = {
    "float8_e4m3fn": ("fp8_e4m3", "float8_e4m3fn"),
    "float8_e4m3fnuz": ("fp8_e4m3", "float8_e4m3fnuz"),
    "float8_e5m2": ("fp8_e5m2", "float8_e5m2"),
    "bfloat16": ("bfloat16", "bfloat16"),
    "float16": ("float16", "float16"),
    "int8": ("int8_per_token_head", "int8"),
}
"""torch's type in the log -> the cache's name and the type that is stored."""

ALLOCATED: Final = re.compile(
    r"KV Cache is allocated\.(?: dtype: (?:torch\.)?(?P<dtype>\w+),)? #tokens: (?P<tokens>\d+),"
    r" (?:K(?: size)?: (?P<keys>[\d.]+) GB, V(?: size)?: (?P<values>[\d.]+) GB|KV size: (?P<both>[\d.]+) GB)"
)


def command(plan: ArmPlan, port: int) -> tuple[str, ...]:
    """The module's argv up to what the arm decides."""
    revision = ("--revision", plan.model.revision) if plan.model.revision else ()
    return (
        sys.executable, "-m", "sglang.launch_server",
        "--model-path", plan.model.source, "--served-model-name", plan.model.name,
        "--host", "127.0.0.1", "--port", str(port), "--random-seed", "0", "--enable-metrics", *revision,
    )  # fmt: skip


def measured(log: str) -> Found:
    """The first pool that was allocated; a second one is a draft model's."""
    found = ALLOCATED.search(log)
    if found is None:
        return {}
    sizes = [float(found[name]) for name in ("keys", "values", "both") if found[name]]
    cache, stored = STORED.get(found["dtype"] or "", (None, found["dtype"]))
    return {
        "cache_dtype": cache,
        "stored_types": {stored: 1} if stored else None,
        "kv_cache_slots": int(found["tokens"]),
        "kv_cache_tokens": int(found["tokens"]),
        "kv_tensor_bytes": int(sum(sizes) * GIB),
    }


def reported(models: Mapping[str, Any], log: str) -> Found:
    """The scheduler's line, and the arguments as they were resolved."""
    chunk = integer(r"chunked_prefill_size=(-?\d+)", log)
    radix = re.search(r"disable_radix_cache=(True|False)", log)
    share = re.search(r"mem_fraction_static=([\d.]+)", log)
    return {
        "max_model_len": served_length(models) or integer(r"context_len=(\d+)", log),
        "max_num_seqs": integer(r"max_running_requests=(\d+)", log),
        "max_num_batched_tokens": chunk if chunk and chunk > 0 else None,
        "chunked_prefill": None if chunk is None else chunk > 0,
        "prefix_caching": None if radix is None else radix.group(1) == "False",
        "block_size": integer(r"page_size=(\d+)", log),
        "gpu_memory_utilization": float(share.group(1)) if share else None,
    }


SGLANG: Final = ServedEngine(
    name="sglang", distribution="sglang", command=command, measured=measured, reported=reported, variables={},
    given_up="Scheduler hit an exception",
)  # fmt: skip
