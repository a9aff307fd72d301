"""Layers that a scheme or a policy leaves as they are: what may be said, who has it, and how it is verified."""

from typing import Any

import pytest
from pydantic import ValidationError

from gatekeeper.domain.capability import capability_problems
from gatekeeper.domain.effective import compare
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.vllm_command import parse_serve_command
from gatekeeper.domain.vllm_flags import serve_flags
from tests.fakes.engine import fake_plan

FP8 = {"quantization": {"scheme": "fp8_e4m3", "skip_layers": [1]}}
SNAPKV = {"eviction": {"policy": "snapkv", "evicted_fraction": 0.25, "skip_layers": [0]}}


def refused(candidate: dict[str, Any], **change: Any) -> list[str]:
    with pytest.raises(InvalidInput) as raised:
        fake_plan(candidate, **change)
    return [problem.field for problem in raised.value.problems]


def observed(plan: Any, setting: str, **effective: Any) -> Any:
    rows = compare(plan.candidate, EffectiveConfig(**effective))
    (row,) = [row for row in rows if row.setting == setting]
    return row


def test_what_skips_no_layers_is_written_as_it_always_was_so_that_waivers_stay() -> None:
    fp8 = {"scheme": "fp8_e4m3", "scales": "unit"}
    window = {"policy": "sliding_window", "window": 64}
    written = KVConfig.model_validate({"quantization": fp8, "eviction": window}).model_dump(mode="json")
    assert (written["quantization"], written["eviction"]) == (fp8, window)
    skipping = KVConfig.model_validate({"quantization": fp8 | {"skip_layers": [1, 0]}}).model_dump(
        mode="json"
    )
    assert skipping["quantization"] == fp8 | {"skip_layers": [0, 1]}


def test_layers_are_kept_in_order_and_named_once() -> None:
    config = KVConfig.model_validate({"quantization": {"scheme": "int8", "skip_layers": [3, 0]}})
    assert config.quantization.model_dump(exclude_none=True)["skip_layers"] == (0, 3)
    assert config.label == "int8 without layers 0, 3"
    for wrong in ([1, 1], [], [-1]):
        with pytest.raises(ValidationError, match="skip_layers"):
            KVConfig.model_validate({"quantization": {"scheme": "int8", "skip_layers": wrong}})
    with pytest.raises(ValidationError, match="skip_layers"):
        KVConfig.model_validate({"quantization": {"scheme": "none", "skip_layers": [0]}})


@pytest.mark.parametrize(
    ("candidate", "field"),
    [
        ({"quantization": {"scheme": "fp8_e4m3", "skip_layers": [2]}}, "candidate.quantization.skip_layers"),
        ({"quantization": {"scheme": "int4", "skip_layers": [0, 1]}}, "candidate.quantization.skip_layers"),
        (
            {"eviction": {"policy": "snapkv", "evicted_fraction": 0.5, "skip_layers": [0]}},
            "candidate.eviction.evicted_fraction",
        ),
    ],
)
def test_what_a_model_of_two_layers_cannot_do_is_refused_by_its_field(
    candidate: dict[str, Any], field: str
) -> None:
    assert field in refused(candidate, engine="reference")


def test_vllm_skips_layers_of_a_quantized_cache_and_the_reference_engine_of_a_window() -> None:
    plan = fake_plan(FP8)
    assert plan.candidate.engine == "vllm"
    assert "--kv-cache-dtype fp8_e4m3 --kv-cache-dtype-skip-layers 1" in " ".join(plan.candidate.serve_flags)
    assert plan.candidate.predicted_kv_bytes_per_token is None
    window = {"eviction": {"policy": "sliding_window", "window": 8, "skip_layers": [1]}}
    assert fake_plan(window).candidate.engine == "reference"
    assert '"skip_layers":[1]' in "".join(fake_plan(window).candidate.serve_flags)


def test_a_command_says_what_its_flags_say() -> None:
    words = "vllm serve m --kv-cache-dtype fp8_e4m3 --kv-cache-dtype-skip-layers 0 3 --max-num-seqs 4".split()
    config = KVConfig.model_validate(parse_serve_command(words, allowed_arguments=frozenset())["candidate"])
    assert config.quantization.model_dump(exclude_none=True)["skip_layers"] == (0, 3)
    assert list(serve_flags(config, shape=None)) == words[3:]


@pytest.mark.parametrize(
    "rest",
    ["--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers sliding_window", "--kv-cache-dtype-skip-layers 0"],
)
def test_names_of_attention_types_and_a_plain_cache_are_refused(rest: str) -> None:
    with pytest.raises(InvalidInput, match="skip-layers"):
        parse_serve_command(["vllm", "serve", "m", *rest.split()], allowed_arguments=frozenset())


def test_other_engines_treat_all_layers_alike() -> None:
    config = KVConfig.model_validate({"quantization": {"scheme": "int8", "skip_layers": [0]}})
    (problem,) = capability_problems("sglang", "cuda", config, arm="candidate")
    assert problem.field == "candidate.quantization.skip_layers"


@pytest.mark.parametrize(("plain", "agrees"), [([1], True), ([0], False), ([], False), (None, None)])
def test_which_layers_stay_in_sixteen_bits_is_read_off_their_tensors(
    plain: list[int] | None, agrees: bool | None
) -> None:
    row = observed(fake_plan(FP8), "quantization.skip_layers", sixteen_bit_layers=plain)
    assert row.agrees is agrees


def test_a_type_of_some_layers_is_enough_where_others_are_skipped() -> None:
    types = {"uint8": 1, "bfloat16": 1}
    assert observed(fake_plan(FP8), "stored_type", stored_types=types).agrees is True
    plain = {"quantization": {"scheme": "fp8_e4m3"}}
    assert observed(fake_plan(plain), "stored_type", stored_types=types).agrees is False


@pytest.mark.parametrize(("kept", "agrees"), [((100, 50), True), ((50, 100), False), ((75, 75), False)])
def test_a_policy_that_skips_a_layer_is_held_against_each(kept: tuple[int, int], agrees: bool) -> None:
    row = observed(
        fake_plan(SNAPKV), "eviction", eviction={**SNAPKV["eviction"], "observation_window": 64},
        seen_tokens=100, kept_tokens=75, kept_by_layer={"0": kept[0], "1": kept[1]},
    )  # fmt: skip
    assert row.agrees is agrees


@pytest.mark.parametrize(("windows", "agrees"), [({"8": 1, "none": 1}, True), ({"none": 2}, False)])
def test_a_window_is_asked_of_the_other_layers(windows: dict[str, int], agrees: bool) -> None:
    plan = fake_plan({"eviction": {"policy": "sliding_window", "window": 8, "skip_layers": [1]}})
    assert observed(plan, "sliding_window", windows=windows).agrees is agrees
