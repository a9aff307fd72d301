"""The flags that put a configuration into effect on engines other than vLLM, one table per engine.

Flags are those of the versions that `capability` names. A configuration that `capability_problems` passes has its
whole effect here; what an engine has no setting for was refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gatekeeper.domain.capability import CapableEngine
from gatekeeper.domain.change import EngineName
from gatekeeper.domain.kv_config import GgmlBlocks, KVConfig, Quantization
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.vllm_flags import argument_flags, cache_dtype, serve_flags

SGLANG_DTYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "none": ("--kv-cache-dtype", "auto"),
    "fp8_e4m3": ("--kv-cache-dtype", "fp8_e4m3"),
    "fp8_e5m2": ("--kv-cache-dtype", "fp8_e5m2"),
    "int8": ("--int8-kv-cache", "--attention-backend", "triton"),
}
LMDEPLOY_POLICIES: Final[Mapping[str, str]] = {"none": "0", "int8": "8", "int4": "4"}
TENSORRT_DTYPES: Final[Mapping[str, str]] = {"none": "auto", "fp8_e4m3": "fp8", "nvfp4": "nvfp4"}


START: Final[Mapping[EngineName, tuple[str, ...]]] = {
    "vllm": ("vllm", "serve"),
    "reference": ("python", "-m", "workers.engines.reference", "--model"),
    "llama_cpp": ("llama-server", "--model"),
    "sglang": ("python", "-m", "sglang.launch_server", "--model-path"),
    "lmdeploy": ("lmdeploy", "serve", "api_server"),
    "tensorrt_llm": ("trtllm-serve",),
}
"""The words with which a person starts an engine by hand; the model and the flags follow."""


def cache_name(engine: EngineName, quantization: Quantization) -> str:
    """What the engine, or the reader of what it shows, calls the cache; `auto`: 16 bits.

    Readers of other engines use vLLM's names. llama.cpp has its own for blocks, the reference engine those of schemes.
    """
    if isinstance(quantization, GgmlBlocks):
        return "/".join(dict.fromkeys((quantization.scheme, quantization.values or quantization.scheme)))
    if engine == "reference":
        return "auto" if quantization.scheme == "none" else quantization.scheme
    return cache_dtype(quantization) or quantization.scheme


def engine_flags(engine: CapableEngine, config: KVConfig, *, shape: ModelShape | None) -> tuple[str, ...]:
    """The flags, in a fixed order. `config.scheduling` has the lengths that the arm decided.

    Raises ValueError for what `capability_problems` reports.
    """
    if engine == "vllm":
        return serve_flags(config, shape=shape)
    flags = [*_FLAGS[engine](config)]
    for name, value in sorted(config.engine_args.items()):
        flags += argument_flags(name, value)
    return tuple(flags)


def _scalars(config: KVConfig, names: Mapping[str, str]) -> list[str]:
    """Field of `scheduling` -> flag, for those that are given."""
    given = config.scheduling.model_dump(exclude_none=True)
    return [word for field, flag in names.items() if field in given for word in (flag, f"{given[field]}")]


def _scheme(config: KVConfig, table: Mapping[str, Any], engine: str) -> Any:
    try:
        return table[config.quantization.scheme]
    except KeyError as error:
        raise ValueError(f"{engine} has no KV cache for {config.quantization.scheme}") from error


def _llama_cpp(config: KVConfig) -> list[str]:
    """Values in blocks need flash attention, so both arms have it. The context is shared out among the slots."""
    match config.quantization:
        case GgmlBlocks(scheme=keys, values=values):
            types = (keys, values or keys)
        case _:
            types = _scheme(config, {"none": ("f16", "f16")}, "llama.cpp")
    flags = ["--cache-type-k", types[0], "--cache-type-v", types[1], "--flash-attn", "on"]
    scheduling = config.scheduling
    if scheduling.max_model_len is not None:
        flags += ["--ctx-size", str(scheduling.max_model_len * (scheduling.max_num_seqs or 1))]
    flags += _scalars(config, {"max_num_seqs": "--parallel", "max_num_batched_tokens": "--batch-size"})
    flags += _scalars(config, {"max_num_batched_tokens": "--ubatch-size"})
    reuse = config.reuse.prefix_caching
    return flags if reuse is None else [*flags, "--cache-prompt" if reuse else "--no-cache-prompt"]


def _sglang(config: KVConfig) -> list[str]:
    """INT8 needs the Triton backend and pages of one token."""
    flags = [*_scheme(config, SGLANG_DTYPES, "SGLang")]
    if config.quantization.scheme == "int8" and config.scheduling.block_size is None:
        flags += ["--page-size", "1"]
    if config.reuse.prefix_caching is False:
        flags.append("--disable-radix-cache")
    if config.scheduling.chunked_prefill is False:
        flags += ["--chunked-prefill-size", "-1"]
    names = {
        "max_num_batched_tokens": "--chunked-prefill-size", "max_num_seqs": "--max-running-requests",
        "block_size": "--page-size", "max_model_len": "--context-length",
        "gpu_memory_utilization": "--mem-fraction-static",
    }  # fmt: skip
    return flags + _scalars(config, names)


def _lmdeploy(config: KVConfig) -> list[str]:
    """Its memory share is of what the weights leave free, not of the whole device. Prefix caching is off by default."""
    flags = ["--quant-policy", _scheme(config, LMDEPLOY_POLICIES, "LMDeploy")]
    if config.reuse.prefix_caching:
        flags.append("--enable-prefix-caching")
    names = {
        "max_num_batched_tokens": "--max-prefill-token-num", "max_num_seqs": "--max-batch-size",
        "block_size": "--cache-block-seq-len", "max_model_len": "--session-len",
        "gpu_memory_utilization": "--cache-max-entry-count",
    }  # fmt: skip
    return flags + _scalars(config, names)


def _tensorrt_llm(config: KVConfig) -> list[str]:
    """Its memory share, too, is of what the weights leave free. Reuse of blocks is on and has no flag."""
    flags = ["--kv_cache_dtype", _scheme(config, TENSORRT_DTYPES, "TensorRT-LLM")]
    if config.scheduling.chunked_prefill:
        flags.append("--enable_chunked_prefill")
    names = {
        "max_num_batched_tokens": "--max_num_tokens", "max_num_seqs": "--max_batch_size",
        "max_model_len": "--max_seq_len", "gpu_memory_utilization": "--kv_cache_free_gpu_memory_fraction",
    }  # fmt: skip
    return flags + _scalars(config, names)


_FLAGS: Final[Mapping[str, Callable[[KVConfig], list[str]]]] = {
    "llama_cpp": _llama_cpp,
    "sglang": _sglang,
    "lmdeploy": _lmdeploy,
    "tensorrt_llm": _tensorrt_llm,
}
