"""The capability table: what it refuses, and that it says what vLLM's flags say."""

from typing import Any

import pytest

from gatekeeper.domain.capability import CAPABILITIES, CapableEngine, DeviceKind, capability_problems
from gatekeeper.domain.change import Change
from gatekeeper.domain.engine_choice import choose_engine
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.vllm_flags import CPU_SCHEMES, unsupported

CONFIGS: list[dict[str, Any]] = [
    {},
    {"quantization": {"scheme": "fp8_e4m3"}},
    {"quantization": {"scheme": "fp8_e4m3", "scales": "calibrated"}},
    {"quantization": {"scheme": "fp8_e5m2", "scales": "checkpoint"}},
    {"quantization": {"scheme": "int8"}},
    {"quantization": {"scheme": "int4"}},
    {"quantization": {"scheme": "int4", "group_size": 64}},
    {"quantization": {"scheme": "nvfp4"}},
    {"quantization": {"scheme": "turboquant_3bit_nc"}},
    {"quantization": {"scheme": "kivi", "bits": 2}},
    {"quantization": {"scheme": "q8_0"}},
    {"eviction": {"policy": "sliding_window", "window": 128}},
    {"eviction": {"policy": "h2o", "evicted_fraction": 0.5}},
]


def fields(engine: CapableEngine, device: DeviceKind, config: dict[str, Any]) -> list[str]:
    problems = capability_problems(engine, device, KVConfig.model_validate(config), arm="candidate")
    return [problem.field for problem in problems]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("config", CONFIGS)
def test_the_table_refuses_what_vllms_flags_refuse(device: DeviceKind, config: dict[str, Any]) -> None:
    parsed = KVConfig.model_validate(config)
    by_flags = unsupported(parsed, arm="candidate", device=device)
    assert bool(capability_problems("vllm", device, parsed, arm="candidate")) == bool(by_flags)


def test_the_cpu_schemes_of_both_tables_are_the_same() -> None:
    assert set(CAPABILITIES["vllm", "cpu"].schemes) == CPU_SCHEMES


@pytest.mark.parametrize(
    ("engine", "device", "config", "refused"),
    [
        ("llama_cpp", "cpu", {"quantization": {"scheme": "q8_0", "values": "q4_0"}}, []),
        (
            "llama_cpp",
            "cuda",
            {"quantization": {"scheme": "q8_0", "values": "q5_1"}},
            ["quantization.scheme"],
        ),
        ("llama_cpp", "cpu", {"quantization": {"scheme": "fp8_e4m3"}}, ["quantization.scheme"]),
        ("llama_cpp", "cpu", {"scheduling": {"block_size": 16}}, ["scheduling.block_size"]),
        ("lmdeploy", "cuda", {"quantization": {"scheme": "int4"}}, []),
        (
            "lmdeploy",
            "cuda",
            {"quantization": {"scheme": "int4", "group_size": 64}},
            ["quantization.group_size"],
        ),
        ("sglang", "cuda", {"quantization": {"scheme": "fp8_e5m2"}}, []),
        ("tensorrt_llm", "cuda", {"quantization": {"scheme": "fp8_e5m2"}}, ["quantization.scheme"]),
        ("tensorrt_llm", "cuda", {"reuse": {"prefix_caching": True}}, ["reuse.prefix_caching"]),
        ("tensorrt_llm", "cuda", {"reuse": {"prefix_caching": False}}, ["reuse.prefix_caching"]),
        ("tensorrt_llm", "cuda", {}, []),
        ("lmdeploy", "cuda", {"reuse": {"prefix_caching": False}}, []),
        ("lmdeploy", "cuda", {"scheduling": {"chunked_prefill": False}}, ["scheduling.chunked_prefill"]),
        ("llama_cpp", "cpu", {"scheduling": {"chunked_prefill": False}}, ["scheduling.chunked_prefill"]),
        ("sglang", "cuda", {"scheduling": {"chunked_prefill": False}}, []),
        ("sglang", "cuda", {"scheduling": {"chunked_prefill": True, "max_num_batched_tokens": 512}}, []),
        (
            "sglang",
            "cuda",
            {"scheduling": {"chunked_prefill": False, "max_num_batched_tokens": 512}},
            ["scheduling.max_num_batched_tokens"],
        ),
        ("sglang", "cuda", {"eviction": {"policy": "snapkv", "evicted_fraction": 0.5}}, ["eviction.policy"]),
    ],
)
def test_what_an_engine_cannot_do_is_refused_by_its_field(
    engine: CapableEngine, device: DeviceKind, config: dict[str, Any], refused: list[str]
) -> None:
    assert fields(engine, device, config) == [f"candidate.{name}" for name in refused]


def test_an_engine_that_reuses_in_any_case_is_not_said_to_reuse_nothing() -> None:
    """A change without a baseline has one without reuse, which this engine cannot be told."""
    fp8: dict[str, Any] = {
        "model": "m", "engine": "tensorrt_llm", "candidate": {"quantization": {"scheme": "fp8_e4m3"}}
    }  # fmt: skip
    found = []
    for document in (fp8, fp8 | {"baseline": {}}):
        change = Change.model_validate(document)
        configs = {"baseline": change.resolved_baseline, "candidate": change.resolved_candidate}
        choice = choose_engine(change.engine, configs, device="cuda", shape=None)
        found.append([problem.field for problem in choice.problems])
    assert found == [["baseline.reuse.prefix_caching", "candidate.reuse.prefix_caching"], []]


def test_an_engine_is_refused_on_a_device_that_it_does_not_run_on() -> None:
    (problem,) = capability_problems("sglang", "cpu", KVConfig(), arm="candidate")
    assert (problem.field, problem.allowed) == ("engine", "cuda")


@pytest.mark.parametrize("capability", CAPABILITIES.values())
def test_every_entry_names_its_version_and_source_and_stores_sixteen_bits(capability: Any) -> None:
    assert capability.version
    assert capability.source
    assert "none" in capability.schemes
    assert "none" in capability.evictions
