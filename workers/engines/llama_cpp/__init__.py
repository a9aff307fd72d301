"""llama.cpp's server, from the PyPI package `xllamacpp`, behind the interface that the suites use.

The model is a GGUF file. `server.py` translates requests and serves llama.cpp's own endpoints beside them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from gatekeeper.domain.plan import ArmPlan
from workers.engines.served import Found, ServedEngine, integer, served_length

MIB: Final = 2**20
ALLOCATED: Final = re.compile(
    r"llama_kv_cache(?:_unified)?: size =\s*(?P<size>[\d.]+) MiB \(\s*(?P<cells>\d+) cells,\s*(?P<layers>\d+) layers,"
    r"\s*\d+/\s*(?P<streams>\d+) seqs\), K \((?P<keys>\w+)\):\s*(?P<key_size>[\d.]+) MiB,"
    r" V \((?P<values>\w+)\):\s*(?P<value_size>[\d.]+) MiB"
)
"""What it logs of every cache; models with windows have two."""
NATIVE: Final[Mapping[str, str]] = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}


def command(plan: ArmPlan, port: int) -> tuple[str, ...]:
    """Our server's argv up to what the arm decides, spelled as llama.cpp's own.

    Its threads wait for each other by spinning, so one core is left to the requests: where a thread has to wait for its
    core, all others do.
    """
    threads = max(1, len(os.sched_getaffinity(0)) - 1)
    return (
        sys.executable, "-m", "workers.engines.llama_cpp.server",
        "--model", plan.model.source, "--alias", plan.model.name, "--port", str(port), "--threads", str(threads),
    )  # fmt: skip


def measured(log: str) -> Found:
    """The caches that were allocated; each stream of one has its own cells."""
    found = list(ALLOCATED.finditer(log))
    if not found:
        return {}
    keys, values = (
        "/".join(dict.fromkeys(NATIVE.get(one[name], one[name]) for one in found))
        for name in ("keys", "values")
    )
    cells = max(int(one["cells"]) * int(one["streams"]) for one in found)
    size = sum(float(one["key_size"]) + float(one["value_size"]) for one in found) * MIB
    return {
        "cache_dtype": "/".join(dict.fromkeys((keys, values))),
        "stored_types": dict.fromkeys((keys, values), int(found[0]["layers"])),
        "kv_cache_slots": cells,
        "kv_cache_tokens": cells,
        "kv_tensor_bytes": int(size),
    }


def reported(models: Mapping[str, Any], log: str) -> Found:
    """The context's settings as they were resolved, and what our server does about reuse."""
    slots = integer(r"llama_context: n_seq_max\s*=\s*(\d+)", log)
    reuse = re.search(r"gatekeeper: prefix caching is (on|off)", log)
    return {
        "max_num_seqs": slots,
        # Our server holds requests to this; the slots have it rounded up to 256 tokens.
        "max_model_len": served_length(models) or integer(r"llama_context: n_ctx_seq\s*=\s*(\d+)", log),
        "max_num_batched_tokens": integer(r"llama_context: n_ubatch\s*=\s*(\d+)", log),
        "prefix_caching": reuse.group(1) == "on" if reuse else None,
    }


LLAMA_CPP: Final = ServedEngine(
    name="llama_cpp",
    distribution="xllamacpp",
    command=command,
    measured=measured,
    reported=reported,
    variables={},
)
