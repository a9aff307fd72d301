"""vLLM's flags from the typed configuration and back."""

import json

import pytest

from gatekeeper.catalog import get_policy, get_suite
from gatekeeper.domain.change import Change
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.eviction import HeavyHitter, SlidingWindow
from gatekeeper.domain.kv_config import (
    EngineArgument,
    Fp8,
    Int4,
    Kivi,
    KVConfig,
    Nf4,
    Quantization,
    Reuse,
    Scheduling,
)
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model, make_plan
from gatekeeper.domain.vllm_command import parse_serve_command
from gatekeeper.domain.vllm_flags import LARGEST_SEED, Device, argument_problem, serve_flags, unsupported

SHAPE = ModelShape(layers=2, attention_heads=2, kv_heads=1, head_dim=64, max_context=2048)
ALLOWED = frozenset({"dtype", "enforce-eager"})


def test_absent_false_and_true_are_three_different_things() -> None:
    flags = [
        serve_flags(KVConfig(reuse=Reuse(prefix_caching=value)), shape=None) for value in (None, False, True)
    ]
    assert flags == [
        ("--kv-cache-dtype", "auto"),
        ("--kv-cache-dtype", "auto", "--no-enable-prefix-caching"),
        ("--kv-cache-dtype", "auto", "--enable-prefix-caching"),
    ]


def test_every_axis_has_its_flags_in_a_fixed_order() -> None:
    config = KVConfig(
        quantization=Fp8(scheme="fp8_e5m2"),
        eviction=SlidingWindow(policy="sliding_window", window=256),
        reuse=Reuse(offload_gib=4),
        scheduling=Scheduling(chunked_prefill=False, max_num_batched_tokens=512, gpu_memory_utilization=0.5),
        engine_args={"enforce_eager": True, "seed": 3, "async-scheduling": False},
    )
    overrides = json.dumps(
        {"sliding_window": 256, "layer_types": ["sliding_attention"] * 2}, separators=(",", ":")
    )
    assert serve_flags(config, shape=SHAPE) == (
        "--kv-cache-dtype", "fp8_e5m2", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "512",
        "--gpu-memory-utilization", "0.5", "--kv-offloading-size", "4", "--hf-overrides", overrides,
        "--no-async-scheduling", "--enforce-eager", "--seed=3",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("quantization", "device", "fits"),
    [
        (Fp8(scheme="fp8_e4m3"), "cpu", True),
        (Fp8(scheme="fp8_e4m3", scales="calibrated"), "cpu", False),
        (Int4(scheme="int4"), "cpu", False),
        (Int4(scheme="int4"), "cuda", True),
        (Int4(scheme="int4", group_size=64), "cuda", False),
        (Nf4(scheme="nf4"), "cuda", False),
        (Kivi(scheme="kivi", bits=2), "cuda", False),
    ],
)
def test_a_scheme_that_vllm_lacks_on_the_device_is_named(
    quantization: Quantization, device: str, fits: bool
) -> None:
    problems = unsupported(KVConfig(quantization=quantization), arm="candidate", device=device)  # type: ignore[arg-type]
    assert bool(problems) is not fits
    assert all(problem.field.startswith("candidate.quantization") and problem.allowed for problem in problems)


def test_an_eviction_policy_that_vllm_lacks_is_named() -> None:
    config = KVConfig(eviction=HeavyHitter(policy="h2o", evicted_fraction=0.5))
    (problem,) = unsupported(config, arm="candidate", device="cuda")
    assert problem.field == "candidate.eviction.policy"


def test_a_serve_command_becomes_a_change_against_itself_without_its_kv_settings() -> None:
    words = (
        "vllm serve m --kv-cache-dtype fp8 --max_num_seqs=8 --enable-prefix-caching --dtype bfloat16".split()
    )
    change = Change.model_validate(parse_serve_command(words, allowed_arguments=ALLOWED))
    baseline, candidate = change.resolved_baseline, change.resolved_candidate
    assert (baseline.quantization.scheme, candidate.quantization.scheme) == ("none", "fp8_e4m3")
    assert (baseline.reuse.prefix_caching, candidate.reuse.prefix_caching) == (False, True)
    assert baseline.scheduling == candidate.scheduling == Scheduling(max_num_seqs=8)
    assert baseline.engine_args == candidate.engine_args == {"dtype": "bfloat16"}


def test_a_serve_command_that_leaves_prefix_caching_out_leaves_it_to_the_engine() -> None:
    words = "vllm serve m --kv-cache-dtype fp8_e5m2".split()
    change = Change.model_validate(parse_serve_command(words, allowed_arguments=ALLOWED))
    assert (
        change.resolved_baseline.reuse.prefix_caching
        is change.resolved_candidate.reuse.prefix_caching
        is None
    )


@pytest.mark.parametrize(
    ("rest", "name"),
    [
        ("--trust-remote-code", "--trust-remote-code"),
        ("--host 0.0.0.0", "--host"),
        ("--frobnicate 3", "--frobnicate"),
        ("--kv-cache-dtype fp9", "--kv-cache-dtype"),
        ("--block-size x", "--block-size"),
        ("--logits-processors a:B", "--logits-processors"),
    ],
)
def test_unknown_and_forbidden_flags_are_refused_by_name(rest: str, name: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_serve_command(["vllm", "serve", "m", *rest.split()], allowed_arguments=ALLOWED)
    assert [problem.field for problem in raised.value.problems] == [f"command {name}"]


@pytest.mark.parametrize("words", [["python", "x"], ["vllm", "serve"], ["vllm", "serve", "--port", "1"]])
def test_anything_else_is_not_a_serve_command(words: list[str]) -> None:
    with pytest.raises(InvalidInput, match="serve command"):
        parse_serve_command(words, allowed_arguments=ALLOWED)


@pytest.mark.parametrize("value", ["--trust-remote-code", "-x"])
def test_a_value_of_an_allowed_argument_cannot_smuggle_in_another_flag(value: str) -> None:
    change = Change.model_validate(
        {"model": "m", "candidate": {"quantization": {"scheme": "fp8_e4m3"}, "engine_args": {"dtype": value}}}
    )
    model, suite, policy = Model(name="m", source="/m", shape=SHAPE), get_suite("smoke"), get_policy("fast")
    with pytest.raises(InvalidInput, match="looks like a flag"):
        make_plan(change, model=model, suite=suite, policy=policy, device="cpu", allowed_arguments=ALLOWED)
    assert serve_flags(KVConfig(engine_args={"dtype": value}), shape=None)[-1] == f"--dtype={value}"


def refused_arguments(
    arguments: dict[str, object],
    allowed: frozenset[str] = ALLOWED,
    *,
    device: Device = "cpu",
    **scheduling: object,
) -> dict[str, str]:
    """Field -> what would be allowed, of a candidate with these engine arguments."""
    candidate = {"quantization": {"scheme": "fp8_e4m3"}, "engine_args": arguments, "scheduling": scheduling}
    change = Change.model_validate({"model": "m", "candidate": candidate})
    model, suite, policy = Model(name="m", source="/m", shape=SHAPE), get_suite("smoke"), get_policy("fast")
    try:
        make_plan(change, model=model, suite=suite, policy=policy, device=device, allowed_arguments=allowed)
    except InvalidInput as error:
        return {problem.field: problem.allowed for problem in error.problems}
    return {}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("dtype", ["bfloat16", "half", "auto"], ["bf16", 16, True]),
        ("seed", [0, "7"], ["x", -1, 1.5, True]),
        ("enforce-eager", [True, False], ["true", 1]),
        ("attention_backend", ["FLASH_ATTN"], [1, "a b", ""]),
        ("whatever", ["x", 1, 0.5, True], []),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_where_the_type_is_known(
    name: str, good: list[object], bad: list[object]
) -> None:
    allowed = frozenset({name.replace("_", "-")})
    assert [value for value in good if refused_arguments({name: value}, allowed)] == []
    assert [value for value in bad if not refused_arguments({name: value}, allowed)] == []


def test_an_argument_that_a_field_stands_for_is_refused_even_if_allowed() -> None:
    allowed = frozenset({"kv-cache-dtype", "enable-prefix-caching"})
    assert refused_arguments({"kv_cache_dtype": "fp8", "enable-prefix-caching": True}, allowed) == {
        "candidate.engine_args.kv_cache_dtype": "candidate.quantization.scheme",
        "candidate.engine_args.enable-prefix-caching": "candidate.reuse.prefix_caching",
    }


def test_a_memory_share_that_differs_is_refused_where_it_has_no_effect() -> None:
    field = "candidate.scheduling.gpu_memory_utilization"
    assert list(refused_arguments({}, gpu_memory_utilization=0.5)) == [field]
    assert refused_arguments({}, device="cuda", gpu_memory_utilization=0.5) == {}


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [({}, "bfloat16"), ({"dtype": "half"}, "float16"), ({"dtype": "auto"}, "bfloat16")],
)
def test_a_checkpoint_that_quantizes_its_own_cache_is_overruled_by_a_16_bit_arm(
    arguments: dict[str, EngineArgument], dtype: str
) -> None:
    shape = SHAPE.model_copy(update={"checkpoint_kv_scheme": "8-bit float"})
    assert serve_flags(KVConfig(engine_args=arguments), shape=shape)[:2] == ("--kv-cache-dtype", dtype)
    quantized = KVConfig(quantization=Fp8(scheme="fp8_e4m3", scales="checkpoint"))
    assert serve_flags(quantized, shape=shape)[:2] == ("--kv-cache-dtype", "fp8_e4m3")


def test_one_argument_in_two_spellings_and_a_length_beyond_the_models_are_refused() -> None:
    candidate = {
        "quantization": {"scheme": "fp8_e4m3"},
        "scheduling": {"max_model_len": 4096},
        "engine_args": {"enforce-eager": True, "enforce_eager": False},
    }
    change = Change.model_validate({"model": "m", "candidate": candidate})
    model, suite, policy = Model(name="m", source="/m", shape=SHAPE), get_suite("smoke"), get_policy("fast")
    with pytest.raises(InvalidInput) as raised:
        make_plan(change, model=model, suite=suite, policy=policy, device="cpu", allowed_arguments=ALLOWED)
    assert {problem.field for problem in raised.value.problems} == {
        "candidate.engine_args",
        "candidate.scheduling.max_model_len",
    }


def test_a_seed_is_one_that_every_generator_of_the_engine_takes() -> None:
    assert [argument_problem("seed", seed) for seed in (0, LARGEST_SEED, "7")] == [None] * 3
    refused: tuple[EngineArgument, ...] = (-1, LARGEST_SEED + 1, 10**400, True, 1.5, "²", "７", "", "x")
    for seed in refused:
        assert "0 to 4294967295" in (argument_problem("seed", seed) or "")
