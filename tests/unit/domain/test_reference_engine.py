"""Which engine a change runs on, what the reference engine refuses, and what on it says nothing."""

from typing import Any, get_args

import pytest

from gatekeeper.domain.change import EngineName
from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.engine_choice import choose_engine, left_out
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_budget import kept_by_layer
from gatekeeper.domain.kv_config import KVConfig, Reuse
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.reference_engine import BLOCK_TOKENS, unsupported
from gatekeeper.domain.vllm_flags import Device
from tests.fakes.engine import SHAPE, fake_plan

ENGINES: tuple[EngineName, ...] = get_args(EngineName)
BASELINE = KVConfig(reuse=Reuse(prefix_caching=False))
KIVI = {"quantization": {"scheme": "kivi", "bits": 2}}
SNAPKV = {"eviction": {"policy": "snapkv", "evicted_fraction": 0.5}}
REUSE: dict[str, Any] = {"reuse": {"prefix_caching": True}}
H2O = {"eviction": {"policy": "h2o", "evicted_fraction": 0.5}}


def chosen(
    candidate: dict[str, Any], asked: EngineName | None = None, device: Device = "cpu"
) -> tuple[str, list[str]]:
    configs = {"baseline": BASELINE, "candidate": KVConfig.model_validate(candidate)}
    choice = choose_engine(asked, configs, device=device, shape=SHAPE)
    return choice.engine, [problem.field for problem in choice.problems]


@pytest.mark.parametrize(
    ("candidate", "device", "engine"),
    [
        ({"quantization": {"scheme": "fp8_e4m3"}}, "cpu", "vllm"),
        ({"quantization": {"scheme": "int8"}}, "cuda", "vllm"),
        ({"quantization": {"scheme": "int8"}}, "cpu", "reference"),
        ({"eviction": {"policy": "sliding_window", "window": 64}}, "cpu", "vllm"),
        ({"reuse": {"prefix_caching": True}}, "cpu", "vllm"),
        (SNAPKV | REUSE, "cpu", "reference"),
        (KIVI | REUSE, "cpu", "reference"),
        (KIVI, "cuda", "reference"),
        (H2O, "cpu", "reference"),
        (H2O | {"quantization": {"scheme": "fp8_e4m3"}}, "cpu", "reference"),
    ],
)
def test_vllm_runs_what_it_has_and_the_reference_engine_the_rest(
    candidate: dict[str, Any], device: Device, engine: str
) -> None:
    assert chosen(candidate, device=device) == (engine, [])


def test_an_engine_that_is_asked_for_is_taken_or_refused_never_replaced() -> None:
    assert chosen({"quantization": {"scheme": "fp8_e4m3"}}, "reference") == ("reference", [])
    assert chosen(KIVI, "vllm") == ("vllm", ["candidate.quantization"])
    assert chosen(REUSE, "reference") == ("reference", [])


def test_what_no_engine_has_is_refused_with_what_each_lacks() -> None:
    engine, fields = chosen(H2O | REUSE)
    assert (engine, fields) == ("vllm", ["candidate.eviction.policy", "candidate.reuse.prefix_caching"])


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"quantization": {"scheme": "nvfp4"}}, "quantization.scheme"),
        ({"quantization": {"scheme": "fp8_e4m3", "scales": "checkpoint"}}, "quantization.scales"),
        ({"quantization": {"scheme": "int4", "group_size": 48}}, "quantization.group_size"),
        ({"quantization": {"scheme": "nf4", "block_size": 128}}, "quantization.block_size"),
        (
            {"quantization": {"scheme": "kivi", "bits": 2, "residual_length": 100}},
            "quantization.residual_length",
        ),
        (KIVI | H2O, "eviction.policy"),
        (H2O | REUSE, "reuse.prefix_caching"),
        (
            REUSE | {"eviction": {"policy": "expected_attention", "budget_tokens": 64}},
            "reuse.prefix_caching",
        ),
        (KIVI | REUSE | {"scheduling": {"max_num_batched_tokens": 64}}, "scheduling.max_num_batched_tokens"),
        (REUSE | {"scheduling": {"max_num_batched_tokens": 65}}, "scheduling.max_num_batched_tokens"),
        ({"reuse": {"offload_gib": 1}}, "reuse.offload_gib"),
        ({"scheduling": {"block_size": 16}}, "scheduling.block_size"),
        ({"engine_args": {"attention-backend": "X"}}, "engine_args.attention-backend"),
        ({"engine_args": {"dtype": "auto"}}, "engine_args.dtype"),
    ],
)
def test_what_would_have_no_effect_or_does_not_exist_is_refused_by_its_field(
    config: dict[str, Any], field: str
) -> None:
    problems = unsupported(KVConfig.model_validate(config), arm="candidate", shape=SHAPE)
    assert [problem.field for problem in problems] == [f"candidate.{field}"]
    assert problems[0].allowed


@pytest.mark.parametrize("pieces", [None, 1, BLOCK_TOKENS])
def test_pieces_within_a_block_go_with_prefix_caching(pieces: int | None) -> None:
    config = KVConfig.model_validate(REUSE | {"scheduling": {"max_num_batched_tokens": pieces}})
    assert unsupported(config, arm="candidate", shape=SHAPE) == []


def test_larger_pieces_go_without_prefix_caching_and_are_refused_with_what_goes_with_it() -> None:
    scheduling = {"scheduling": {"max_num_batched_tokens": 512}}
    config = KVConfig.model_validate(SNAPKV | scheduling)
    assert unsupported(config, arm="candidate", shape=SHAPE) == []
    with pytest.raises(InvalidInput) as raised:
        fake_plan(SNAPKV | REUSE, baseline=scheduling, engine="reference")
    (problem,) = raised.value.problems
    assert problem.field == "candidate.scheduling.max_num_batched_tokens"
    assert problem.allowed == "absent, or 1 to 64, with prefix_caching: true"


def test_a_plan_carries_engine_reason_flags_and_command() -> None:
    plan = fake_plan(KIVI)
    assert (plan.baseline.engine, plan.candidate.engine) == ("reference", "reference")
    assert "kivi" in plan.engine_reason
    assert '{"scheme":"kivi","bits":2,"group_size":32,"residual_length":128}' in plan.candidate.serve_flags
    assert plan.candidate.command[:3] == ("python", "-m", "workers.engines.reference")
    assert fake_plan().candidate.command[:2] == ("vllm", "serve")


def test_prefix_caching_is_a_flag_where_it_is_asked_for() -> None:
    plan = fake_plan(SNAPKV | REUSE)
    assert "--enable-prefix-caching" in plan.candidate.serve_flags
    assert "--enable-prefix-caching" not in plan.baseline.serve_flags
    assert plan.modes[:2] == ("cold", "warm")


def test_a_change_that_asks_vllm_for_kivi_is_refused() -> None:
    with pytest.raises(InvalidInput, match="kivi"):
        fake_plan(KIVI, engine="vllm")


@pytest.mark.parametrize(
    ("eviction", "kept"),
    [
        ({"policy": "none"}, 100),
        ({"policy": "topk", "k": 8}, 100),
        ({"policy": "sliding_window", "window": 30}, 30),
        ({"policy": "streaming_llm", "sinks": 4, "window": 200}, 100),
        ({"policy": "h2o", "evicted_fraction": 0.8}, 20),
        ({"policy": "snapkv", "evicted_fraction": 0.301}, 69),
        ({"policy": "tova", "budget_tokens": 500}, 100),
        ({"policy": "tova", "evicted_fraction": 0.999}, 1),
    ],
)
def test_kept_tokens_of_a_prompt_of_a_hundred(eviction: dict[str, Any], kept: int) -> None:
    assert kept_by_layer(KVConfig.model_validate({"eviction": eviction}).eviction, 100, layers=1) == (kept,)


def test_speed_and_saturation_say_nothing_on_the_reference_engine() -> None:
    assert "not comparable" in str(left_out("reference", suite="performance", mode="cold"))
    assert left_out("reference", suite="fidelity", mode="saturated")
    assert left_out("reference", suite="fidelity", mode="cold") is None
    assert left_out("vllm", suite="performance", mode="cold") is None


@pytest.mark.parametrize("engine", ENGINES)
def test_only_vllm_can_be_given_a_small_pool(engine: EngineName) -> None:
    for place in ({"suite": "saturated", "mode": "cold"}, {"suite": "fidelity", "mode": "saturated"}):
        assert (left_out(engine, **place) is None) == (engine == "vllm")


@pytest.mark.parametrize(
    ("seen", "kept", "evidence", "agrees"),
    [
        (100, 50, H2O["eviction"], True),
        (100, 100, H2O["eviction"], False),
        (100, 50, {"policy": "none"}, False),
    ],
)
def test_an_eviction_that_was_not_applied_is_a_mismatch(
    seen: int, kept: int, evidence: dict[str, object], agrees: bool
) -> None:
    plan = fake_plan(H2O)
    effective = EffectiveConfig(cache_dtype="auto", eviction=evidence, seen_tokens=seen, kept_tokens=kept)
    wrong = [row.setting for row in mismatches(compare(plan.candidate, effective))]
    assert wrong == ([] if agrees else ["eviction"])


@pytest.mark.parametrize(
    ("kept", "agrees"), [((90, 50, 10), True), ((50, 50, 50), False), ((90, 10, 50), False)]
)
def test_what_each_layer_kept_counts_not_what_they_kept_together(kept: tuple[int, ...], agrees: bool) -> None:
    pyramid = {"policy": "pyramidkv", "evicted_fraction": 0.5, "observation_window": 8}
    plan = fake_plan({"eviction": pyramid})
    effective = EffectiveConfig(
        cache_dtype="auto",
        eviction=pyramid,
        seen_tokens=100,
        kept_tokens=50,
        kept_by_layer={str(layer): tokens for layer, tokens in enumerate(kept)},
    )
    (row,) = [row for row in compare(plan.candidate, effective) if row.setting == "eviction"]
    assert row.agrees is agrees
    assert "50 of 100 tokens kept" in str(row.effective)


def test_an_engine_that_says_nothing_of_its_eviction_leaves_it_open() -> None:
    plan = fake_plan(H2O)
    (row,) = [
        row
        for row in compare(plan.candidate, EffectiveConfig(cache_dtype="auto"))
        if row.setting == "eviction"
    ]
    assert (row.agrees, row.effective) == (None, None)


@pytest.mark.parametrize(
    ("eviction", "kept", "agrees", "evidence"),
    [
        ({"policy": "h2o", "budget_tokens": 40}, 40, True, "measured"),
        ({"policy": "h2o", "budget_tokens": 400}, 100, None, "measured"),
        ({"policy": "sliding_window", "window": 40}, 40, True, "measured"),
        ({"policy": "sliding_window", "window": 40}, 100, False, "measured"),
        ({"policy": "sliding_window", "window": 100}, 100, None, "measured"),
        ({"policy": "topk", "k": 8}, 100, True, "reported"),
    ],
)
def test_what_an_engine_kept_of_its_own_sequence_tells_of_eviction_where_something_had_to_go(
    eviction: dict[str, Any], kept: int, agrees: bool | None, evidence: str
) -> None:
    plan = fake_plan({"eviction": eviction})
    effective = EffectiveConfig(
        cache_dtype="auto", eviction=eviction, seen_tokens=100, kept_tokens=kept,
        evidence={"eviction": "reported", "kept_tokens": "measured"},
    )  # fmt: skip
    (row,) = [row for row in compare(plan.candidate, effective) if row.setting == "eviction"]
    assert (row.agrees, row.evidence) == (agrees, evidence)
    assert bool(row.reason) == (agrees is None)
