"""LMDeploy's server (TurboMind). Its argv and reading are tested on documented output; it has not run here yet.

Sources: `lmdeploy serve api_server --help`, and the log lines of TurboMind's block manager. It logs neither the type of
the cache nor the tokens of a block: both are repeated from its arguments. Nor does it log the bytes of the pool, only
those of a block in whole MB, rounded down, which is too coarse to tell INT8 from INT8 with scales.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gatekeeper.domain.plan import ArmPlan
from workers.engines.served import Found, ServedEngine, integer, served_length

POLICIES: Final[Mapping[str, str]] = {"0": "auto", "8": "int8_per_token_head", "4": "int4_per_token_head"}


def command(plan: ArmPlan, port: int) -> tuple[str, ...]:
    """The program's argv up to what the arm decides."""
    revision = ("--revision", plan.model.revision) if plan.model.revision else ()
    return (
        "lmdeploy", "serve", "api_server", plan.model.source, "--model-name", plan.model.name,
        "--server-name", "127.0.0.1", "--server-port", str(port), "--log-level", "INFO", *revision,
    )  # fmt: skip


def measured(_log: str) -> Found:
    """Nothing: the blocks are counted, but how many tokens are in one is an argument."""
    return {}


def reported(models: Mapping[str, Any], log: str) -> Found:
    """The engine's configuration as it prints it, and the pool of as many blocks as it counts."""
    blocks = integer(r"\[BlockManager\] max_block_count = (\d+)", log)
    tokens = integer(r"cache_block_seq_len[`'\"]?\s*[=:]\s*(\d+)", log)
    slots = blocks * tokens if blocks and tokens else None
    policy = re.search(r"quant_policy[`'\"]?\s*[=:]\s*(?:<[^>]*: )?(\d+)", log)
    caching = re.search(r"enable_prefix_caching[`'\"]?\s*[=:]\s*(True|False|true|false)", log)
    return {
        "kv_cache_slots": slots,
        "kv_cache_tokens": slots,
        "cache_dtype": POLICIES.get(policy.group(1)) if policy else None,
        "max_model_len": served_length(models) or integer(r"session_len[`'\"]?\s*[=:]\s*(\d+)", log),
        "max_num_seqs": integer(r"max_batch_size[`'\"]?\s*[=:]\s*(\d+)", log),
        "block_size": tokens,
        "prefix_caching": caching.group(1).lower() == "true" if caching else None,
    }


LMDEPLOY: Final = ServedEngine(
    name="lmdeploy",
    distribution="lmdeploy",
    command=command,
    measured=measured,
    reported=reported,
    variables={},
)
