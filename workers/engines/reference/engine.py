"""The reference engine as a kind of engine: its command, environment, and account of itself. Loads no torch."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.verdict import EngineInfo
from workers.engines.vllm import Vllm
from workers.engines.vllm_effective import SELF_REPORT

MEASURED: Final = (
    "seen_tokens", "kept_tokens", "kept_by_layer", "stored_types", "sixteen_bit_layers", "kv_tensor_bytes",
    "kv_cache_tokens", "kept_after_decoding",
)  # fmt: skip
"""What was read off the cache's tensors; the rest repeats the configuration with which they were made."""


class Reference:
    """The server of this package."""

    name = "reference"

    def argv(self, plan: ArmPlan, *, port: int) -> tuple[str, ...]:
        """The server's command: what decides the arm is in `plan.serve_flags`, the rest is the same in all arms."""
        argv = [
            sys.executable, "-m", "workers.engines.reference", "--model", plan.model.source,
            "--served-model-name", plan.model.name, "--port", str(port), "--device", plan.device,
        ]  # fmt: skip
        if plan.model.revision:
            argv += ["--revision", plan.model.revision]
        return (*argv, *plan.serve_flags)

    def environment(self, plan: ArmPlan, *, gpu: str | None) -> dict[str, str]:
        """No hub for local models; threads that wait sleep, since the machine is shared with what measures."""
        variables = {"DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
        if Path(plan.model.source).is_absolute():
            variables["HF_HUB_OFFLINE"] = "1"
        if plan.device == "cpu":
            cores = str(len(os.sched_getaffinity(0)))
            variables |= {"OMP_NUM_THREADS": cores, "OMP_WAIT_POLICY": "passive"}
        elif gpu is not None:
            variables["CUDA_VISIBLE_DEVICES"] = gpu
        return variables

    def info(self, plan: ArmPlan, *, gpu: str | None) -> EngineInfo:
        """The libraries that compute, and the hardware as vLLM's worker names it."""
        versions = (f"{name} {importlib.metadata.version(name)}" for name in ("transformers", "torch"))
        hardware = Vllm().info(plan, gpu=gpu).hardware
        return EngineInfo(name=self.name, version=", ".join(versions), device=plan.device, hardware=hardware)

    def effective(
        self, metrics_text: str, models: Mapping[str, Any], log: str, *, arguments: Collection[str] = ()
    ) -> EffectiveConfig:
        """Read the account in the log and the gauge.

        The engine's bytes per token are what one more token adds, so `kv_tensor_bytes` is that for every token seen:
        tokens held back in full precision are in `kv_cache_tokens` only.
        """
        account = _account(log)
        if account is None:
            return EffectiveConfig()
        labels = _labels(metrics_text)
        added = account["bytes_of_one_more"]
        fields: dict[str, Any] = _of_layers(account) | {
            "cache_dtype": labels.get("cache_dtype"),
            "seen_tokens": account["seen"],
            "kv_cache_tokens": int(labels["kv_cache_size_tokens"]),
            "kv_cache_bytes": int(labels["kv_cache_memory_bytes"]),
            "kv_tensor_bytes": None if added is None else round(added * account["seen"]),
            "kv_cache_slots": None if added is None else account["seen"],
            "block_size": int(labels["block_size"]),
            "prefix_caching": labels["enable_prefix_caching"] == "True",
            "max_model_len": models["data"][0]["max_model_len"],
            "max_num_batched_tokens": account["max_num_batched_tokens"],
            "model_dtype": account["model_dtype"],
            "calibration": account.get("calibration"),
        }
        seen = {"dtype": account["model_dtype"]}
        return EffectiveConfig(
            **fields,
            arguments={name: seen[name] for name in arguments if name in seen},
            evidence={name: "measured" if name in MEASURED else "reported" for name in (*fields, *seen)},
        )

    def has_given_up(self, log: str) -> bool:
        """Its process ends when it can't start."""
        return False

    def root_cause(self, log: str) -> str:
        """The last exception of the log, as vLLM's are read."""
        return Vllm().root_cause(log)


def _of_layers(account: Mapping[str, Any]) -> dict[str, Any]:
    """What the account says of layers: how they store, and how many tokens they hold."""
    eviction, held, plain = account["eviction"], account["held_by_layer"], account["sixteen_bit_layers"]
    whole = len(eviction.get("skip_layers", ()))
    windows = {str(eviction.get("window")): len(held) - whole} | ({"none": whole} if whole else {})
    quantized = len(held) - len(plain) if account["cache_dtype"].startswith("fp8") else None
    decoded = account.get("decoded")
    then = (
        {"decoded_tokens": decoded, "kept_after_decoding": _by_layer(account["held_after_decoding"])}
        if decoded
        else {}
    )
    return then | {
        "stored_types": account["stored_types"],
        "sixteen_bit_layers": plain,
        "eviction": eviction,
        "kept_tokens": sum(held) // len(held),
        "kept_by_layer": _by_layer(held),
        "windows": windows if eviction["policy"] == "sliding_window" else {},
        "unit_scale_layers": quantized,
        "scaled_layers": None if quantized is None else 0,
    }


def _by_layer(held: Sequence[int]) -> dict[str, int]:
    """Tokens by layer, under the layer's name."""
    return {str(layer): tokens for layer, tokens in enumerate(held)}


def _account(log: str) -> dict[str, Any] | None:
    _, found, rest = log.partition(SELF_REPORT)
    if not found:
        return None
    account: dict[str, Any] = json.JSONDecoder().raw_decode(rest)[0]
    return account


def _labels(metrics_text: str) -> dict[str, str]:
    for family in text_string_to_metric_families(metrics_text):
        if family.name == "vllm:cache_config_info":
            return dict(family.samples[0].labels)
    return {}
