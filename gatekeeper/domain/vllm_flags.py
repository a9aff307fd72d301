"""vLLM's serve flags and the typed configuration, in both directions.

Checked against vLLM 0.32's `EngineArgs` and its `CacheDType`. Pure: strings in, values out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, assert_never

from gatekeeper.domain.errors import FieldProblem, InvalidInput
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
    NoEviction,
    NoQuantization,
    Nvfp4,
    Quantization,
    SlidingWindow,
    TurboQuant,
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
    "hf-overrides": "eviction",
    "kv-offloading-size": "reuse.offload_gib",
    **{switch: ".".join(place) for place, switch in SWITCHES.items()},
    **{flag[2:]: f"scheduling.{field}" for field, (flag, _) in SCALAR_FLAGS.items()},
}
"""Flags that fields of the configuration stand for -> the field. As engine arguments they would contradict it."""

DTYPES: Final = ("auto", "bfloat16", "float16", "half", "float32", "float")
"""vLLM's model types; `half` and `float` are other names."""


def argument_problem(name: str, value: EngineArgument) -> str | None:
    """What is wrong with the value of an engine argument whose type is known here, as what it has to be instead."""
    match name.replace("_", "-"):
        case "dtype":
            return None if value in DTYPES else f"one of {', '.join(DTYPES)}"
        case "seed":
            whole = str(value).isdigit() and not isinstance(value, bool)
            return None if whole else "a whole number from 0"
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


# --- from a command line ---------------------------------------------------------------------------------------------


def parse_serve_command(argv: Sequence[str], *, allowed_arguments: frozenset[str]) -> dict[str, Any]:
    """Translate `vllm serve MODEL …` into the document of a change (to be validated as any other).

    The baseline is the same command without its KV quantization, offload and explicit prefix caching. What the command
    leaves out is vLLM's default in both arms. Raises InvalidInput naming each flag that is unknown or forbidden.
    """
    words = list(argv)
    if words[:2] != ["vllm", "serve"] or len(words) < 3 or words[2].startswith("-"):
        raise InvalidInput(
            [FieldProblem(field="command", problem="not a serve command", allowed="vllm serve MODEL …")]
        )
    candidate: dict[str, Any] = {"reuse": {}, "scheduling": {}, "engine_args": {}}
    problems = []
    for name, value in _flag_pairs(words[3:]):
        problem = _take_flag(candidate, name, value, allowed_arguments)
        if problem:
            problems.append(problem)
    if problems:
        raise InvalidInput(problems)
    baseline = {key: candidate[key] for key in ("scheduling", "engine_args")}
    if "prefix_caching" in candidate["reuse"]:
        baseline["reuse"] = {"prefix_caching": False}
    return {"model": words[2], "engine": "vllm", "baseline": baseline, "candidate": candidate}


def _flag_pairs(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield (name with dashes, value or None for a switch)."""
    index = 0
    while index < len(words):
        word = words[index]
        if not word.startswith("--"):
            raise InvalidInput(
                [FieldProblem(field="command", problem=f"unexpected word {word!r}", allowed="--flag")]
            )
        name, equals, value = word[2:].partition("=")
        has_next = index + 1 < len(words) and not words[index + 1].startswith("--")
        index += 1
        if equals:
            yield name.replace("_", "-"), value
        elif has_next:
            yield name.replace("_", "-"), words[index]
            index += 1
        else:
            yield name.replace("_", "-"), None


def _take_flag(
    candidate: dict[str, Any], name: str, value: str | None, allowed_arguments: frozenset[str]
) -> FieldProblem | None:
    """Put one flag into `candidate`, or say why not."""
    field = f"command --{name}"
    switches = {switch: place for place, switch in SWITCHES.items()}
    scalars = {flag[2:]: ("scheduling", key, kind) for key, (flag, kind) in SCALAR_FLAGS.items()}
    scalars["kv-offloading-size"] = ("reuse", "offload_gib", float)
    if name.removeprefix("no-") in switches and value is None:
        axis, key = switches[name.removeprefix("no-")]
        candidate[axis][key] = not name.startswith("no-")
        return None
    if name in scalars and value is not None:
        axis, key, kind = scalars[name]
        try:
            candidate[axis][key] = kind(value)
        except ValueError:
            return FieldProblem(field=field, problem=f"{value!r} is not a number", allowed=kind.__name__)
        return None
    if name == "kv-cache-dtype":
        return _take_cache_dtype(candidate, value)
    if name in FORBIDDEN_ARGUMENTS:
        return FieldProblem(field=field, problem="this flag is forbidden", allowed="the operator sets it")
    if name.removeprefix("no-") not in allowed_arguments:
        return FieldProblem(
            field=field, problem="unknown or not allowed", allowed=", ".join(sorted(allowed_arguments))
        )
    candidate["engine_args"][name.removeprefix("no-")] = (
        value if value is not None else not name.startswith("no-")
    )
    return None


def _take_cache_dtype(candidate: dict[str, Any], value: str | None) -> FieldProblem | None:
    schemes: dict[str, str] = {
        "auto": "none",
        "bfloat16": "none",
        "float16": "none",
        "fp8": "fp8_e4m3",
        "fp8_e4m3": "fp8_e4m3",
        "fp8_e5m2": "fp8_e5m2",
        "int8_per_token_head": "int8",
        "int4_per_token_head": "int4",
        "nvfp4": "nvfp4",
        "turboquant_k8v4": "turboquant_k8v4",
        "turboquant_4bit_nc": "turboquant_4bit_nc",
        "turboquant_k3v4_nc": "turboquant_k3v4_nc",
        "turboquant_3bit_nc": "turboquant_3bit_nc",
    }
    if value not in schemes:
        return FieldProblem(
            field="command --kv-cache-dtype", problem=f"unknown {value!r}", allowed=", ".join(schemes)
        )
    candidate["quantization"] = {"scheme": schemes[value]}
    return None
