"""What is read back from vLLM, on lines that it really wrote (tests/data/vllm)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.plan import ArmPlan, Model
from tests.fakes.engine import fake_plan
from workers.engines.vllm_effective import SCALE_WARNING, SELF_REPORT, read_effective

DATA = Path(__file__).parents[2] / "data" / "vllm"
SHAPE = ModelShape(layers=30, attention_heads=9, kv_heads=3, head_dim=64, max_context=8192)
CHECKPOINT = {"quantization": {"scheme": "fp8_e4m3", "scales": "checkpoint"}}


def log_of(name: str) -> str:
    return (DATA / f"{name}.log").read_text(encoding="utf-8")


def read(name: str, *, log: str | None = None, arguments: tuple[str, ...] = ()) -> EffectiveConfig:
    """What is read from a recorded launch, or with another log in its place."""
    metrics, models = DATA / f"{name}.metrics", DATA / f"{name}.models.json"
    return read_effective(
        metrics.read_text(encoding="utf-8") if metrics.exists() else "",
        json.loads(models.read_text(encoding="utf-8")) if models.exists() else {},
        log_of(name) if log is None else log,
        arguments=arguments,
    )


def without_account(name: str) -> str:
    return "\n".join(line for line in log_of(name).splitlines() if SELF_REPORT not in line)


def arm(candidate: dict[str, Any] | None = None) -> ArmPlan:
    """The candidate, or the baseline, of a change to SmolLM2 as it was launched."""
    plan = fake_plan(candidate)
    chosen = plan.baseline if candidate is None else plan.candidate
    model = Model(name="m", source="/models/smollm2-135m", shape=SHAPE)
    return chosen.model_copy(update={"max_model_len": 768, "model": model})


def refused(plan: ArmPlan, effective: EffectiveConfig) -> list[str]:
    return [row.sentence for row in mismatches(compare(plan, effective))]


def test_every_key_of_a_launch_is_read_with_its_evidence() -> None:
    seen = read("scheduling", arguments=("attention-backend", "seed", "dtype"))
    assert (seen.max_num_batched_tokens, seen.max_num_seqs, seen.block_size) == (128, 6, 64)
    assert (seen.chunked_prefill, seen.prefix_caching, seen.max_model_len) == (True, True, 768)
    assert (seen.model_dtype, seen.gpu_memory_utilization, seen.offload_gib) == ("bfloat16", 0.92, None)
    assert seen.kv_bytes_per_token == 23_040
    assert seen.arguments == {"attention_backend": "CPU_ATTN", "seed": "3", "dtype": "bfloat16"}
    measured = {name for name, kind in seen.evidence.items() if kind == "measured"}
    assert measured == {"kv_tensor_bytes", "stored_types", "windows", "attention_backend"}


def test_a_backend_that_the_engine_replaced_in_silence_is_caught() -> None:
    plan = arm({"scheduling": {"max_num_seqs": 6}})
    asked = plan.config.model_copy(update={"engine_args": {"attention-backend": "FLASH_ATTN"}})
    plan = plan.model_copy(update={"config": asked})
    seen = read("scheduling", arguments=("attention-backend",))
    assert "attention-backend: requested FLASH_ATTN, effective CPU_ATTN" in refused(plan, seen)


def test_a_window_is_that_of_the_layers_and_chunking_is_off() -> None:
    plan = arm(
        {"eviction": {"policy": "sliding_window", "window": 128}, "scheduling": {"chunked_prefill": False}}
    )
    seen = read("sliding_window")
    assert (seen.windows, seen.sliding_window, seen.chunked_prefill) == ({"128": 30}, 128, False)
    assert refused(plan, seen) == []


@pytest.mark.parametrize(
    ("name", "applied"),
    [
        ("fp8_with_scales", True),
        ("fp8_plain", False),
        ("fp8_compressed_tensors_without_scales", False),
        ("fp8_modelopt_without_scales", False),
    ],
)
def test_scales_from_the_checkpoint_are_seen_or_missed(name: str, applied: bool) -> None:
    sentences = refused(arm(CHECKPOINT), read(name))
    dropped = "quantization.scales: requested checkpoint, effective 1.0 in all 30 layers"
    assert (dropped in sentences) is not applied


@pytest.mark.parametrize("name", ["fp8_plain", "fp8_compressed_tensors_without_scales"])
def test_vllm_says_nothing_of_scales_that_most_checkpoints_lack(name: str) -> None:
    """So the warning cannot be what scales are judged by; without the worker's account they count as not applied."""
    assert SCALE_WARNING not in log_of(name)
    seen = read(name, log=without_account(name))
    assert "quantization.scales: requested checkpoint, effective not reported" in refused(
        arm(CHECKPOINT), seen
    )


def test_the_warning_counts_where_there_is_no_account() -> None:
    seen = read("fp8_modelopt_without_scales", log=without_account("fp8_modelopt_without_scales"))
    assert seen.scale_warning == SCALE_WARNING
    assert "quantization.scales: requested checkpoint, effective 1.0, as the engine warns" in refused(
        arm(CHECKPOINT), seen
    )
    assert "quantization.scales" not in " ".join(refused(arm({"quantization": {"scheme": "fp8_e4m3"}}), seen))


def test_a_checkpoint_that_quantizes_its_cache_makes_no_16_bit_baseline() -> None:
    """The configuration says `auto` to the end."""
    assert "kv_cache_dtype=auto" in log_of("declared_fp8_at_auto")
    seen = read("declared_fp8_at_auto")
    assert seen.cache_dtype == "auto"
    assert "stored_type: requested 16-bit, effective uint8" in refused(arm(), seen)


def test_an_explicit_type_keeps_such_a_baseline_at_16_bit() -> None:
    seen = read("declared_fp8_at_bfloat16")
    assert (seen.cache_dtype, seen.stored_types, seen.kv_bytes_per_token) == (
        "bfloat16",
        {"bfloat16": 30},
        23_040,
    )
    assert refused(arm(), seen) == []


def test_without_an_account_the_log_still_tells_most() -> None:
    seen = read_effective("", {}, without_account("fp8_plain"))
    assert (seen.cache_dtype, seen.model_dtype, seen.max_model_len) == ("fp8_e4m3", "bfloat16", 768)
    assert (seen.chunked_prefill, seen.max_num_batched_tokens, seen.prefix_caching) == (True, 256, False)
    assert (seen.max_num_seqs, seen.block_size) == (12, 64)
    echoed = {name for name, kind in seen.evidence.items() if kind == "echoed"}
    assert echoed == {"max_num_seqs", "block_size"}


def test_what_the_core_switches_off_later_is_off() -> None:
    line = "(EngineCore pid=2) INFO [core.py:282] Disabling chunked prefill: model has non-causal attention layers."
    seen = read_effective("", {}, f"{log_of('fp8_plain')}\n{line}")
    assert seen.chunked_prefill is False


def test_offload_without_a_connector_is_none() -> None:
    account = {"layers": [], "cache_bytes": 0, "config": {"kv_offloading_size": 4.0, "kv_connector": None}}
    with_one = {**account, "config": {"kv_offloading_size": 4.0, "kv_connector": "OffloadingConnector"}}
    sizes = [
        read_effective("", {}, f"{SELF_REPORT}{json.dumps(told)}").offload_gib for told in (account, with_one)
    ]
    assert sizes == [0.0, 4.0]


def test_an_account_that_was_cut_off_is_none() -> None:
    assert read_effective("", {}, f'{SELF_REPORT}{{"layers": [{{"count"').stored_types == {}
