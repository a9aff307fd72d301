"""Requested and effective configuration: what agrees, what does not, and what cannot be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.domain.effective import POOL_IS_FIXED, changed, compare, mismatches
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.observation import Observation
from gatekeeper.domain.plan import ArmPlan
from tests.fakes.engine import fake_plan

BASELINE = EffectiveConfig(
    cache_dtype="auto", kv_cache_slots=512, kv_tensor_bytes=1_048_576, stored_types={"bfloat16": 2},
    prefix_caching=False, max_num_seqs=16, max_model_len=256,
    evidence={"cache_dtype": "reported", "kv_tensor_bytes": "measured", "stored_types": "measured"},
)  # fmt: skip
FP8 = replace(
    BASELINE, cache_dtype="fp8_e4m3", kv_cache_slots=1024, stored_types={"uint8": 2}, unit_scale_layers=2,
    scaled_layers=0, smallest_scale=1.0, largest_scale=1.0,
)  # fmt: skip


def candidate(**config: Any) -> ArmPlan:
    return fake_plan(config).candidate


def scaled(scales: str) -> ArmPlan:
    return candidate(quantization={"scheme": "fp8_e4m3", "scales": scales})


def row(plan: ArmPlan, effective: EffectiveConfig, setting: str) -> Observation:
    (found,) = (row for row in compare(plan, effective) if row.setting == setting)
    return found


def with_field(name: str, value: Any) -> EffectiveConfig:
    changed: dict[str, Any] = {name: value}
    return replace(BASELINE, **changed)


def refused(plan: ArmPlan, effective: EffectiveConfig) -> list[str]:
    return [row.setting for row in mismatches(compare(plan, effective))]


def test_a_16_bit_baseline_is_proven_by_its_tensors() -> None:
    plan = fake_plan().baseline
    assert refused(plan, BASELINE) == []
    assert row(plan, BASELINE, "stored_type").evidence == "measured"
    assert row(plan, BASELINE, "kv_bytes_per_token").evidence == "measured"


@pytest.mark.parametrize(
    ("fault", "settings"),
    [
        ({"cache_dtype": "fp8_e4m3"}, ["cache_dtype"]),
        ({"cache_dtype": None}, ["cache_dtype"]),
        ({"stored_types": {"float8_e4m3fn": 2}, "kv_cache_slots": 1024}, ["stored_type", "kv_bytes_per_token"]),
        ({"stored_types": {"bfloat16": 1, "uint8": 1}}, ["stored_type"]),
        ({"stored_types": {"float32": 2}, "kv_cache_slots": 256}, ["stored_type", "kv_bytes_per_token"]),
    ],
)  # fmt: skip
def test_a_baseline_that_is_not_16_bit_is_caught_by_whatever_shows_it(
    fault: Mapping[str, Any], settings: list[str]
) -> None:
    """A checkpoint that asks for a quantized cache leaves the label at `auto`: only the tensors tell."""
    assert refused(fake_plan().baseline, replace(BASELINE, **fault)) == settings


def test_a_label_of_fp8_over_16_bit_tensors_is_a_setting_that_was_ignored() -> None:
    ignored = replace(FP8, stored_types={"bfloat16": 2}, kv_cache_slots=512)
    assert refused(scaled("unit"), ignored) == ["stored_type", "kv_bytes_per_token"]


WITH_SCALES = replace(FP8, unit_scale_layers=0, scaled_layers=2, smallest_scale=0.02, largest_scale=0.08)
IN_PART = replace(FP8, unit_scale_layers=1, scaled_layers=1, smallest_scale=0.02)
WARNED = "Using KV cache scaling factor 1.0"
SILENT = replace(FP8, unit_scale_layers=None, scaled_layers=None)


@pytest.mark.parametrize(
    ("requested", "effective", "agrees", "shown"),
    [
        ("unit", FP8, True, "1.0 in all 2 layers"),
        ("checkpoint", FP8, False, "1.0 in all 2 layers"),
        ("checkpoint", WITH_SCALES, True, "0.02 to 0.08"),
        ("unit", WITH_SCALES, False, "0.02 to 0.08"),
        ("checkpoint", IN_PART, False, "0.02 to 1, 1.0 in 1 of 2 layers"),
        ("unit", IN_PART, False, "0.02 to 1, 1.0 in 1 of 2 layers"),
        ("checkpoint", replace(SILENT, scale_warning=WARNED), False, "1.0, as the engine warns"),
        ("unit", replace(SILENT, scale_warning=WARNED), True, "1.0, as the engine warns"),
        ("checkpoint", SILENT, False, None),
        ("unit", SILENT, None, None),
        ("checkpoint", replace(WITH_SCALES, scale_warning=WARNED), False, f"0.02 to 0.08, but it warns: {WARNED}"),
    ],
)  # fmt: skip
def test_scales_that_were_asked_for_must_be_seen(
    requested: str, effective: EffectiveConfig, agrees: bool | None, shown: str | None
) -> None:
    found = row(scaled(requested), effective, "quantization.scales")
    assert (found.agrees, found.effective) == (agrees, shown)


def test_the_sentence_on_dropped_scales_names_both() -> None:
    found = row(scaled("checkpoint"), FP8, "quantization.scales")
    assert found.sentence == "quantization.scales: requested checkpoint, effective 1.0 in all 2 layers"


def test_a_window_has_to_be_that_of_every_layer() -> None:
    plan = candidate(eviction={"policy": "sliding_window", "window": 64})
    known = replace(BASELINE, sliding_window=64)
    assert row(plan, known, "sliding_window").agrees is True
    assert row(plan, replace(known, windows={"64": 2}), "sliding_window").agrees is True
    half = row(plan, replace(known, windows={"64": 1, "none": 1}), "sliding_window")
    assert (half.agrees, half.effective) == (False, "64 (1 layers), none (1 layers)")
    assert row(plan, BASELINE, "sliding_window").agrees is None


@pytest.mark.parametrize(
    ("config", "field", "applied", "overridden"),
    [
        ({"reuse": {"prefix_caching": True}}, "prefix_caching", True, False),
        ({"reuse": {"offload_gib": 2}}, "offload_gib", 2.0, 4.0),
        ({"scheduling": {"chunked_prefill": False}}, "chunked_prefill", False, True),
        ({"scheduling": {"max_num_batched_tokens": 128}}, "max_num_batched_tokens", 128, 2048),
        ({"scheduling": {"max_num_seqs": 8}}, "max_num_seqs", 8, 16),
        ({"scheduling": {"block_size": 32}}, "block_size", 32, 16),
        ({"scheduling": {"max_model_len": 512}}, "max_model_len", 512, 256),
    ],
)
def test_every_other_key_is_held_against_what_the_engine_came_to(
    config: dict[str, Any], field: str, applied: Any, overridden: Any
) -> None:
    plan = candidate(**config)
    states = {
        value: row(plan, with_field(field, value), field).agrees for value in (applied, overridden, None)
    }
    assert states == {applied: True, overridden: False, None: None}


def test_a_memory_share_means_nothing_on_cpu_and_is_not_said_to_agree() -> None:
    same = {"scheduling": {"gpu_memory_utilization": 0.5, "max_model_len": 256}}
    plan = fake_plan(baseline=same)
    found = row(plan.candidate, replace(FP8, gpu_memory_utilization=0.5), "gpu_memory_utilization")
    assert (found.agrees, found.reason) == (None, POOL_IS_FIXED)


def test_a_passed_through_argument_is_looked_up_by_its_name() -> None:
    plan = candidate(scheduling={"max_num_seqs": 8})
    config = plan.config.model_copy(
        update={"engine_args": {"dtype": "half", "attention-backend": "TRITON_ATTN", "odd": 1}}
    )
    plan = plan.model_copy(update={"config": config})
    effective = replace(
        BASELINE, arguments={"dtype": "float16", "attention_backend": "CPU_ATTN"},
        evidence={"attention_backend": "measured"},
    )  # fmt: skip
    rows = {found.setting: found for found in compare(plan, effective)}
    assert [rows[name].agrees for name in ("dtype", "attention-backend", "odd")] == [True, False, None]
    assert rows["attention-backend"].evidence == "measured"
    assert rows["odd"].reason


def test_what_a_change_sets_is_told_from_what_both_arms_have() -> None:
    plan = fake_plan({"quantization": {"scheme": "fp8_e4m3"}, "reuse": {"offload_gib": 2}})
    before, after = compare(plan.baseline, BASELINE), compare(plan.candidate, FP8)
    rows = changed(before, after)
    assert {found.setting for found in rows} >= {"cache_dtype", "quantization.scales", "offload_gib"}
    assert [found.setting for found in rows if found.agrees is None] == ["offload_gib"]
    alone = fake_plan({"reuse": {"offload_gib": 2}})
    assert [found.setting for found in changed(before, compare(alone.candidate, BASELINE))] == ["offload_gib"]
