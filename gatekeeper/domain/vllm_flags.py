"""vLLM's serve flags for a typed configuration; `vllm_command` is the way back.

Checked against vLLM 0.32's `EngineArgs` and its `CacheDType`. Pure: strings in, values out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal, assert_never

from gatekeeper.domain.errors import FieldProblem
from gatekeeper.domain.eviction import NoEviction, SlidingWindow
from gatekeeper.domain.kv_config import (
    EngineArgument,
    Fp8,
    GgmlBlocks,
    Int4,
    Int8,
    Kivi,
    KVConfig,
    KvQuant,
    Nf4,
    NoQuantization,
    Nvfp4,
    Quantization,
    Quantized,
    TurboQuant,
    skipped_layers,
)
from gatekeeper.domain.kv_memory import ModelShape

Device = Literal["cpu", "cuda"]

CPU_SCHEMES: Final = frozenset({"none", "fp8_e4m3", "fp8_e5m2"})
"""What vLLM's CPU attention backend stores (its `supported_kv_cache_dtypes`)."""

SCALAR_FLAGS: Final[Mapping[str, tuple[str, type[int | float]]]] = {
    "max_num_batched_tokens": ("--max-num-batched-tokens", int),
    "max_num_seqs": ("--max-num-seqs", int),
    "block_size": ("--block-size", int),
    "max_model_len": ("--max-model-len", int),
    "gpu_memory_utilization": ("--gpu-memory-utilization", float),
}
"""Scheduling field -> flag and type."""

SWITCHES: Final[Mapping[tuple[str, str], str]] = {
    ("reuse", "prefix_caching"): "enable-prefix-caching",
    ("scheduling", "chunked_prefill"): "enable-chunked-prefill",
}
"""Three-valued fields: None gives no flag, True `--enable-…`, False `--no-enable-…`."""

FORBIDDEN_ARGUMENTS: Final = frozenset(
    {
        "model", "tokenizer", "served-model-name", "host", "port", "uds", "api-key", "ssl-keyfile", "ssl-certfile",
        "trust-remote-code", "download-dir", "chat-template", "config", "logits-processors", "worker-cls",
        "worker-extension-cls", "scheduler-cls", "middleware", "tool-parser-plugin", "reasoning-parser-plugin",
        "plugins", "load-format", "model-loader-extra-config", "hf-config-path", "hf-token", "allowed-local-media-path",
        "kv-transfer-config", "lora-modules", "otlp-traces-endpoint", "io-processor-plugin", "generation-config",
    }
)  # fmt: skip
"""Never passed through, whatever the operator allows: code, paths, hosts, ports, identity."""


TYPED_ARGUMENTS: Final[Mapping[str, str]] = {
    "kv-cache-dtype": "quantization.scheme",
    "kv-cache-dtype-skip-layers": "quantization.skip_layers",
    "hf-overrides": "eviction",
    "kv-offloading-size": "reuse.offload_gib",
    **{switch: ".".join(place) for place, switch in SWITCHES.items()},
    **{flag[2:]: f"scheduling.{field}" for field, (flag, _) in SCALAR_FLAGS.items()},
}
"""Flags that fields of the configuration stand for -> the field. As engine arguments they would contradict it."""

LARGEST_SEED: Final = 2**32 - 1
"""NumPy's generator, which vLLM seeds among others, takes no larger one."""

DTYPES: Final = ("auto", "bfloat16", "float16", "half", "float32", "float")
"""vLLM's model types; `half` and `float` are other names."""


def argument_problem(name: str, value: EngineArgument) -> str | None:
    """What is wrong with the value of an engine argument whose type is known here, as what it has to be instead."""
    match name.replace("_", "-"):
        case "dtype":
            return None if value in DTYPES else f"one of {', '.join(DTYPES)}"
        case "seed":
            digits = str(value)
            whole = digits.isascii() and digits.isdigit() and len(digits) <= len(str(LARGEST_SEED))
            return (
                None if whole and int(digits) <= LARGEST_SEED else f"a whole number from 0 to {LARGEST_SEED}"
            )
        case "enforce-eager":
            return None if isinstance(value, bool) else "true or false"
        case "attention-backend":
            named = isinstance(value, str) and value.replace("_", "").isalnum()
            return None if named else "the name of a backend, such as FLASH_ATTN"
        case _:
            return None


def same_argument(name: str, requested: EngineArgument, seen: str) -> bool:
    """Whether an engine argument came to what was asked for; `auto` asks for whatever the engine chooses."""
    other_names = {"half": "float16", "float": "float32"} if name == "dtype" else {}
    asked = other_names.get(str(requested), str(requested))
    return asked == "auto" or asked.casefold() == seen.casefold()


def cache_dtype(quantization: Quantization) -> str | None:
    """Return vLLM's `--kv-cache-dtype` for a scheme, or None where vLLM has no such cache."""
    match quantization:
        case NoQuantization():
            return "auto"
        case Fp8(scheme=scheme) | Nvfp4(scheme=scheme) | TurboQuant(scheme=scheme):
            return scheme
        case Int8():
            return "int8_per_token_head"
        case Int4(group_size=None):
            return "int4_per_token_head"
        case Int4() | Nf4() | Kivi() | KvQuant() | GgmlBlocks():
            return None
        case _:
            assert_never(quantization)


def unsupported(config: KVConfig, *, arm: str, device: Device) -> list[FieldProblem]:
    """Return what vLLM on `device` cannot do of `config`; field paths start with `arm`."""
    problems = []
    scheme = config.quantization.scheme
    if cache_dtype(config.quantization) is None:
        problems.append(
            FieldProblem(
                field=f"{arm}.quantization",
                problem=f"vLLM has no KV cache for {scheme} with these parameters",
                allowed="none, fp8_e4m3, fp8_e5m2, int8, int4 without group_size, nvfp4, turboquant_*",
            )
        )
    elif device == "cpu" and scheme not in CPU_SCHEMES:
        problems.append(
            FieldProblem(
                field=f"{arm}.quantization.scheme",
                problem=f"vLLM's CPU backend does not store {scheme}",
                allowed=", ".join(sorted(CPU_SCHEMES)),
            )
        )
    if isinstance(config.quantization, Fp8) and config.quantization.scales == "calibrated":
        problems.append(
            FieldProblem(
                field=f"{arm}.quantization.scales",
                problem="vLLM 0.32 no longer calibrates scales at start-up",
                allowed="unit, checkpoint",
            )
        )
    if not isinstance(config.eviction, NoEviction | SlidingWindow):
        problems.append(
            FieldProblem(
                field=f"{arm}.eviction.policy",
                problem=f"vLLM does not implement {config.eviction.policy}",
                allowed="none, sliding_window",
            )
        )
    elif skipped_layers(config.eviction):
        problems.append(
            FieldProblem(
                field=f"{arm}.eviction.skip_layers",
                problem="on vLLM a window is asked of every layer",
                allowed="absent",
            )
        )
    return problems


def serve_flags(config: KVConfig, *, shape: ModelShape | None) -> tuple[str, ...]:
    """Return the flags of `vllm serve` that put `config` into effect, in a fixed order.

    `shape` is needed for a sliding window, which vLLM takes per layer from the model's own configuration, and to keep
    16 bits where the checkpoint asks for a quantized cache.
    Raises ValueError for what `unsupported` reports.
    """
    dtype = cache_dtype(config.quantization)
    if dtype is None:
        raise ValueError(f"vLLM has no KV cache for {config.quantization.scheme}")
    if dtype == "auto" and shape is not None and shape.checkpoint_kv_scheme is not None:
        dtype = _sixteen_bit(config)  # `auto` would follow the checkpoint
    flags = ["--kv-cache-dtype", dtype]
    if isinstance(config.quantization, Quantized) and config.quantization.skip_layers:
        flags += ["--kv-cache-dtype-skip-layers", *map(str, config.quantization.skip_layers)]
    for (axis, field), switch in SWITCHES.items():
        value = getattr(getattr(config, axis), field)
        if value is not None:
            flags.append(f"--{switch}" if value else f"--no-{switch}")
    for field, (flag, _) in SCALAR_FLAGS.items():
        value = getattr(config.scheduling, field)
        if value is not None:
            flags += [flag, f"{value}"]
    if config.reuse.offload_gib is not None:
        flags += ["--kv-offloading-size", f"{config.reuse.offload_gib:g}"]
    flags += _window_flags(config, shape)
    for name, argument in sorted(config.engine_args.items()):
        flags += argument_flags(name, argument)
    return tuple(flags)


def _sixteen_bit(config: KVConfig) -> str:
    """The 16-bit type of the cache that fits the model's own."""
    return "float16" if config.engine_args.get("dtype") in ("float16", "half") else "bfloat16"


def _window_flags(config: KVConfig, shape: ModelShape | None) -> list[str]:
    match config.eviction:
        case NoEviction():
            return []
        case SlidingWindow(window=window):
            if shape is None:
                raise ValueError("a sliding window needs the model's shape")
            overrides = {"sliding_window": window, "layer_types": ["sliding_attention"] * shape.layers}
            return ["--hf-overrides", json.dumps(overrides, separators=(",", ":"))]
        case other:
            raise ValueError(f"vLLM does not implement {other.policy}")


def argument_flags(name: str, value: EngineArgument) -> list[str]:
    """A passed-through argument as one word, or as a switch."""
    flag = f"--{name.replace('_', '-')}"
    match value:
        case True:
            return [flag]
        case False:
            return [f"--no-{name.replace('_', '-')}"]
        case _:
            return [f"{flag}={value}"]  # one word, so that a value can never be read as another flag
