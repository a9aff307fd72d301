"""vLLM's effective configuration, read back from everything that it says about itself.

The worker's own account (`self_report`) says what it holds; the metrics' labels and the log say what the engine
resolved its arguments to; one line of the log repeats the arguments. Checked against vLLM 0.32; what another version
words differently is None here, never guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from gatekeeper.domain.kv_memory import GIB
from gatekeeper.domain.measurement import EffectiveConfig, Evidence

SELF_REPORT: Final = "gatekeeper self-report "
"""What `workers.engines.self_report` puts before its JSON."""

PIECES: Final = "gatekeeper prompt pieces "
"""What `workers.engines.forced_tokens` puts before the number of pieces in which a prompt was computed."""

SCALE_WARNING: Final = "Using KV cache scaling factor 1.0"
"""Logged once if any layer of a checkpoint that may have scales has none. For a plain checkpoint vLLM says nothing."""

CONFIGURED: Final[Mapping[str, tuple[str, type]]] = {
    "block_size": ("block_size", int),
    "prefix_caching": ("enable_prefix_caching", bool),
    "offload_gib": ("kv_offloading_size", float),
    "chunked_prefill": ("enable_chunked_prefill", bool),
    "max_num_batched_tokens": ("max_num_batched_tokens", int),
    "max_num_seqs": ("max_num_seqs", int),
    "max_model_len": ("max_model_len", int),
    "gpu_memory_utilization": ("gpu_memory_utilization", float),
}
"""Field of ours -> vLLM's name for it, the same in its configuration, in the metrics' labels and in its arguments."""

SIXTEEN_BIT: Final = ("bfloat16", "float16")

DISABLED: Final = re.compile(r"Disabling (chunked prefill|prefix caching)\b")
"""The engine's core may switch these off after the configuration was logged."""


def read_effective(
    metrics_text: str, models: Mapping[str, Any], log: str, *, arguments: Collection[str] = ()
) -> EffectiveConfig:
    """Merge all sources, the strongest first. `arguments`: passed-through engine arguments to look up too."""
    account, labels = _account(log), _labels(metrics_text)
    resolved = account.get("config", {})
    served = (models.get("data") or [{}])[0]
    sources: list[tuple[Evidence, Mapping[str, Any]]] = [
        ("measured", _held(account)),
        ("reported", _overridden(log, resolved)),
        ("reported", _pool(labels, log)),
        ("reported", _configured(labels)),
        ("reported", {"max_model_len": served.get("max_model_len")}),
        ("reported", _configured(resolved)),
        ("reported", _logged(log)),
        ("echoed", _configured(_given(log))),
    ]
    fields: dict[str, Any] = {}
    evidence: dict[str, Evidence] = {}
    for kind, found in sources:
        for name, value in found.items():
            if value is not None and name not in fields:
                fields[name], evidence[name] = value, kind
    seen = dict(_arguments(arguments, account))
    evidence |= {name: kind for name, (_, kind) in seen.items()}
    return EffectiveConfig(
        **fields, arguments={name: value for name, (value, _) in seen.items()}, evidence=evidence
    )


# --- what the worker process holds -----------------------------------------------------------------------------------


def _account(log: str) -> dict[str, Any]:
    """The worker's own account, or nothing if it is not there or could not be made."""
    _, found, rest = log.partition(SELF_REPORT)
    if not found:
        return {}
    try:
        account: dict[str, Any] = json.JSONDecoder().raw_decode(rest)[0]
    except ValueError:
        return {}
    return account if "layers" in account else {}


def _held(account: Mapping[str, Any]) -> dict[str, Any]:
    layers = account.get("layers", [])
    if not layers:
        return {}
    quantized = [kind for kind in layers if _has_scales(str(kind["kv_cache_dtype"]))]
    scales = [scale for kind in quantized for scale in kind["scales"] or ()]
    unit = sum(kind["unit_scale_layers"] for kind in quantized)
    return {
        "kv_tensor_bytes": account["cache_bytes"],
        "stored_types": _counted(layers, "stored_as"),
        "sixteen_bit_layers": _plain(layers),
        "windows": _counted(layers, "sliding_window"),
        "smallest_scale": min(scales) if scales else None,
        "largest_scale": max(scales) if scales else None,
        "unit_scale_layers": unit if scales else None,
        "scaled_layers": sum(kind["count"] for kind in quantized) - unit if scales else None,
    }


def _has_scales(kv_cache_dtype: str) -> bool:
    """Whether a cache type has scales per tensor or head: the other types compute theirs for each token."""
    return kv_cache_dtype.startswith("fp8") and not kv_cache_dtype.endswith("per_token_head")


def _plain(layers: list[dict[str, Any]]) -> list[int] | None:
    """The layers with 16-bit elements; None where some layer's number is not known."""
    if any(kind.get("indices") is None for kind in layers):
        return None
    return sorted(layer for kind in layers if kind["stored_as"] in SIXTEEN_BIT for layer in kind["indices"])


def _counted(layers: list[dict[str, Any]], key: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for kind in layers:
        name = "none" if kind[key] is None else str(kind[key])
        counts[name] = counts.get(name, 0) + int(kind["count"])
    return counts


def _arguments(
    names: Collection[str], account: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[str, Evidence]]]:
    """Name with underscores -> value in effect, of those that the worker knows."""
    resolved = account.get("config", {})
    for name in (name.replace("-", "_") for name in names):
        if name == "attention_backend" and account.get("attention_backends"):
            yield name, ("+".join(account["attention_backends"]), "measured")
        elif resolved.get(name) is not None:
            yield name, (str(resolved[name]), "reported")


# --- what the engine resolved ----------------------------------------------------------------------------------------


def _labels(metrics_text: str) -> dict[str, str]:
    for family in text_string_to_metric_families(metrics_text):
        if family.name == "vllm:cache_config_info":
            for sample in family.samples:
                return dict(sample.labels)
    return {}


def _pool(labels: Mapping[str, str], log: str) -> dict[str, Any]:
    """The cache as the metrics describe it. A GPU's label leaves the memory out; the log has it to 0.01 GiB."""
    blocks, block_size = _value(labels.get("num_gpu_blocks"), int), _value(labels.get("block_size"), int)
    logged = re.search(r"Available KV cache memory: ([\d.]+) GiB", log)
    return {
        "cache_dtype": labels.get("cache_dtype"),
        "kv_cache_tokens": _value(labels.get("kv_cache_size_tokens"), int),
        "kv_cache_slots": blocks * block_size if blocks and block_size else None,
        "kv_cache_bytes": _value(labels.get("kv_cache_memory_bytes"), int)
        or (int(float(logged.group(1)) * GIB) if logged else None),
        "sliding_window": _value(labels.get("sliding_window"), int),
    }


def _configured(names: Mapping[str, Any]) -> dict[str, Any]:
    return {ours: _value(names.get(theirs), kind) for ours, (theirs, kind) in CONFIGURED.items()}


def _value(text: Any, kind: type) -> Any:
    """A label's, a configuration's or an argument's value, or None if it is not one of that kind."""
    if kind is bool:
        return {"True": True, "False": False}.get(str(text))
    try:
        return kind(str(text))
    except ValueError:
        return None


def _overridden(log: str, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine came to in spite of its configuration. Offload without a connector moves nothing."""
    off = {found.group(1).replace(" ", "_"): False for found in DISABLED.finditer(log)}
    idle = resolved.get("kv_offloading_size") is not None and resolved.get("kv_connector") is None
    return {
        "scale_warning": SCALE_WARNING if SCALE_WARNING in log else None,
        "offload_gib": 0.0 if idle else None,
        **off,
    }


def _logged(log: str) -> dict[str, Any]:
    """The line with the resolved configuration, and the one on the budget of a batch."""
    _, _, line = log.partition("Initializing a V1 LLM engine")
    line = line.partition("\n")[0] or log
    budget = re.search(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)", log)
    patterns = {
        "model_dtype": (r"\bdtype=torch\.(\w+)", str),
        "cache_dtype": (r"\bkv_cache_dtype=(\w+)", str),
        "chunked_prefill": (r"\benable_chunked_prefill=(\w+)", bool),
        "prefix_caching": (r"\benable_prefix_caching=(\w+)", bool),
        "max_model_len": (r"\bmax_seq_len=(\d+)", int),
    }
    found = {name: (re.search(pattern, line), kind) for name, (pattern, kind) in patterns.items()}
    read = {name: _value(match.group(1), kind) for name, (match, kind) in found.items() if match}
    if budget:
        read = {"chunked_prefill": True, **read, "max_num_batched_tokens": int(budget.group(1))}
    return read


def _given(log: str) -> dict[str, str]:
    """The arguments that are not vLLM's defaults, as it repeats them: `non-default args: {'max_num_seqs': 16, …}`."""
    _, _, line = log.partition("non-default args: ")
    pairs = re.findall(r"'(\w+)': ('[^']*'|[^,{}\[\]]+)", line.partition("\n")[0])
    return {name: value.strip("'") for name, value in pairs}
