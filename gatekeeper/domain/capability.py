"""Which KV methods each engine's device backend really implements: data, with the place where it was read.

An engine may accept a setting that the backend of its device ignores or refuses late. What stands here was read in the
sources or the documentation of the version named. It decides what is refused before a launch; what was launched is
still held against the bytes and the types that the engine shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gatekeeper.domain.errors import FieldProblem
from gatekeeper.domain.kv_config import (
    Fp8,
    GgmlBlocks,
    Int4,
    KVConfig,
    Quantization,
    Reuse,
    Scheduling,
    skipped_layers,
)

CapableEngine = Literal["vllm", "llama_cpp", "sglang", "lmdeploy", "tensorrt_llm"]
DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Capability:
    """What one engine does on one kind of device.

    `schemes`, those it stores; `evictions`: the policies it implements; `scales`: those of FP8 that it can use;
    `silent`: fields of `scheduling` and `reuse` that it has no setting for; `version` and `source`: where all this was
    read. What a scheme needs beyond that kind of device stands beside it: the engine refuses to start without it.
    """

    version: str
    source: str
    schemes: tuple[str, ...]
    evictions: frozenset[str] = frozenset({"none"})
    scales: frozenset[str] = frozenset({"unit", "checkpoint"})
    silent: frozenset[str] = frozenset()


TURBOQUANT: Final = ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc")
ABSENT_REUSE: Final = (
    "absent, in both arms; a change without a baseline has one that says false, one with baseline {} none"
)
GGML: Final = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

CAPABILITIES: Final[Mapping[tuple[CapableEngine, DeviceKind], Capability]] = {
    ("vllm", "cpu"): Capability(
        version="0.32.0",
        source="vllm/v1/attention/backends/cpu_attn.py, supported_kv_cache_dtypes and the check of the processor",
        schemes=("none", "fp8_e4m3", "fp8_e5m2"),  # FP8: x86-64 with AVX-512 or AMX
        evictions=frozenset({"none", "sliding_window"}),
    ),
    ("vllm", "cuda"): Capability(
        version="0.32.0",
        source="vllm/v1/attention/backends/: supported_kv_cache_dtypes of the backends named below",
        schemes=(
            "none",
            "fp8_e4m3",  # FLASH_ATTN (version 3), FLASHINFER, TRITON_ATTN; compute capability 8.9 or newer
            "fp8_e5m2",  # FLASHINFER, TRITON_ATTN; FLASH_ATTN has no e5m2; compute capability 8.9 or newer
            "int8",  # TRITON_ATTN only
            "int4",  # TRITON_ATTN only
            "nvfp4",  # FLASHINFER only; compute capability 10.0 or newer
            *TURBOQUANT,  # TURBOQUANT only
        ),
        evictions=frozenset({"none", "sliding_window"}),
    ),
    ("llama_cpp", "cpu"): Capability(
        version="b11549",
        source="tools/server/README.md, --cache-type-k and --cache-type-v; run from xllamacpp 2026.10.11549",
        schemes=("none", *GGML),
        scales=frozenset(),
        silent=frozenset({"chunked_prefill", "block_size", "gpu_memory_utilization", "offload_gib"}),
    ),
    ("llama_cpp", "cuda"): Capability(
        version="b11549",
        source="tools/server/README.md, --cache-type-k and --cache-type-v",
        # Its CUDA build has attention kernels for other pairs of types only with GGML_CUDA_FA_ALL_QUANTS.
        schemes=("none", "q8_0", "q4_0"),
        scales=frozenset(),
        silent=frozenset({"chunked_prefill", "block_size", "gpu_memory_utilization", "offload_gib"}),
    ),
    ("sglang", "cuda"): Capability(
        version="0.5",
        source="docs/advanced_features/quantized_kv_cache.md and server_arguments.md",
        schemes=(
            "none",
            "fp8_e4m3",  # compute capability 8.9 or newer
            "fp8_e5m2",  # compute capability 8.9 or newer
            "int8",  # the Triton attention backend with pages of one token
        ),
        silent=frozenset({"offload_gib"}),
    ),
    ("lmdeploy", "cuda"): Capability(
        version="0.7",
        source="docs/en/quantization/kv_quant.md and lmdeploy/cli/utils.py, --quant-policy",
        schemes=("none", "int8", "int4"),
        scales=frozenset(),
        silent=frozenset({"chunked_prefill", "offload_gib"}),
    ),
    ("tensorrt_llm", "cuda"): Capability(
        version="1.3",
        source="trtllm-serve --kv_cache_dtype, and KvCacheConfig of the LLM API reference",
        schemes=("none", "fp8_e4m3", "nvfp4"),  # compute capability 8.9 or newer, and 10.0
        scales=frozenset({"checkpoint", "unit"}),
        silent=frozenset({"prefix_caching", "block_size", "offload_gib"}),
    ),
}


def capability_problems(
    engine: CapableEngine, device: DeviceKind, config: KVConfig, *, arm: str
) -> list[FieldProblem]:
    """What `engine` on `device` cannot do of a configuration, each with what it can; field paths start with `arm`."""
    capability = CAPABILITIES.get((engine, device))
    if capability is None:
        devices = ", ".join(kind for name, kind in CAPABILITIES if name == engine)
        return [FieldProblem(field="engine", problem=f"{engine} does not run on {device}", allowed=devices)]
    problems = [*_quantization(engine, capability, config.quantization, arm)]
    if config.eviction.policy not in capability.evictions:
        problems.append(
            FieldProblem(
                field=f"{arm}.eviction.policy",
                problem=f"{engine} does not implement {config.eviction.policy}",
                allowed=", ".join(sorted(capability.evictions)),
            )
        )
    problems += [
        FieldProblem(
            field=f"{arm}.{axis}.skip_layers", problem=f"{engine} treats all layers alike", allowed="absent"
        )
        for axis, part in (("quantization", config.quantization), ("eviction", config.eviction))
        if skipped_layers(part) and engine != "vllm"
    ]
    return [*problems, *_silent(engine, capability, config, arm), *_one_flag_for_two(engine, config, arm)]


def _quantization(
    engine: CapableEngine, capability: Capability, quantization: Quantization, arm: str
) -> Iterator[FieldProblem]:
    scheme, allowed = quantization.scheme, ", ".join(capability.schemes)
    types = {scheme, quantization.values or scheme} if isinstance(quantization, GgmlBlocks) else {scheme}
    unknown = sorted(types - set(capability.schemes))
    if unknown:
        problem = f"{engine} {capability.version} does not store {', '.join(unknown)} on this device"
        yield FieldProblem(field=f"{arm}.quantization.scheme", problem=problem, allowed=allowed)
    elif isinstance(quantization, Int4) and quantization.group_size is not None:
        problem = f"{engine} scales INT4 per token and head"
        yield FieldProblem(field=f"{arm}.quantization.group_size", problem=problem, allowed="absent")
    elif isinstance(quantization, Fp8) and quantization.scales not in capability.scales:
        problem = f"{engine} {capability.version} has no {quantization.scales} scales"
        allowed = ", ".join(sorted(capability.scales))
        yield FieldProblem(field=f"{arm}.quantization.scales", problem=problem, allowed=allowed)


def _silent(
    engine: CapableEngine, capability: Capability, config: KVConfig, arm: str
) -> Iterator[FieldProblem]:
    """Fields that would have no effect, so that a verdict on them would speak of nothing.

    `false` is one of them: what has no switch here is on. All of these engines without a switch for chunks read long
    prompts in chunks, and TensorRT-LLM reuses blocks.
    """
    for section, values in (("reuse", config.reuse), ("scheduling", config.scheduling)):
        for name in values.model_dump(exclude_none=True):
            if name not in capability.silent:
                continue
            known = sorted({*Reuse.model_fields, *Scheduling.model_fields} - capability.silent)
            absent = ABSENT_REUSE if name == "prefix_caching" else "absent"
            yield FieldProblem(
                field=f"{arm}.{section}.{name}",
                problem=f"{engine} has no setting for it",
                allowed=f"{absent}; it has {', '.join(known)}",
            )


def _one_flag_for_two(engine: CapableEngine, config: KVConfig, arm: str) -> Iterator[FieldProblem]:
    """SGLang's chunk size is the budget of a batch, and -1 of the same flag is what switches chunks off."""
    scheduling = config.scheduling
    if engine == "sglang" and scheduling.chunked_prefill is False and scheduling.max_num_batched_tokens:
        yield FieldProblem(
            field=f"{arm}.scheduling.max_num_batched_tokens",
            problem="sglang has one setting for this and chunked_prefill: false",
            allowed="absent where chunked_prefill is false",
        )
