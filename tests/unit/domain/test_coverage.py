"""What a suite has to reach before anything may pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gatekeeper.catalog import get_policy, get_suite, list_names
from gatekeeper.domain.change import Change
from gatekeeper.domain.coverage import gaps_of_features
from gatekeeper.domain.documents import parse_document
from gatekeeper.domain.foresight import foresee
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model, Plan, make_plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.probes import BLOCK_MULTIPLE, SaturatedProbe
from gatekeeper.domain.suite import Suite

EXAMPLES = Path(__file__).parents[3] / "examples"
SHAPE = ModelShape(layers=2, attention_heads=4, kv_heads=4, head_dim=64, max_context=8192)
FP8 = {"quantization": {"scheme": "fp8_e4m3"}}
SPEED = Policy.model_validate(
    {"name": "speed", "rules": [{"metric": "throughput_ratio", "at_least": 0.9, "reason": "r"}]}
)
ACCURACY_ONLY = Suite.model_validate(
    {"name": "answers", "description": "", "probes": [
        {"probe": "accuracy", "tasks": ["t"], "items_per_task": 40, "expected_items": {"t": 100}}]}
)  # fmt: skip


def plan_of(
    candidate: dict[str, Any],
    *,
    suite: Suite | None = None,
    policy: Policy | None = None,
    baseline: dict[str, Any] | None = None,
    **deployment: int,
) -> Plan:
    document = {"model": "m", "candidate": candidate, "deployment": deployment}
    if baseline is not None:
        document["baseline"] = baseline
    return make_plan(
        Change.model_validate(document), model=Model(name="m", source="/m", shape=SHAPE),
        suite=suite or get_suite("smoke"), policy=policy or get_policy("fast"), device="cpu",
        allowed_arguments=frozenset(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "gap"),
    [
        ({"max_context": 640, "decode_tokens": 128, "concurrency": 16}, None),
        ({"max_context": 641}, "max_context 641 > 640 tokens reached"),
        ({"decode_tokens": 129}, "decode_tokens 129 > 128 tokens decoded"),
        ({"concurrency": 1_000}, None),
    ],
)
def test_each_declared_value_has_to_be_reached(declared: dict[str, Any], gap: str | None) -> None:
    assert plan_of(FP8, **declared).coverage_gaps == ((gap,) if gap else ())


def test_a_rule_that_blocks_on_speed_needs_the_declared_load() -> None:
    assert plan_of(FP8, suite=get_suite("standard"), concurrency=32).coverage_gaps == ()
    assert plan_of(FP8, suite=get_suite("standard"), policy=SPEED, concurrency=32).coverage_gaps == (
        "concurrency 32 > 16 prompts of the speed rounds",
    )


def test_an_undeclared_load_is_covered_by_what_is_run() -> None:
    two = Suite.model_validate(
        {"name": "two", "description": "", "probes": [
            {"probe": "saturated", "documents": 2, "context_tokens": 64, "decode_tokens": 16}]}
    )  # fmt: skip
    assert plan_of(FP8, suite=two).coverage_gaps == ()
    assert plan_of(FP8, suite=two, concurrency=16).coverage_gaps == ("concurrency 16 > 2 requests in flight",)


def suite_of(probe: dict[str, Any]) -> Suite:
    return Suite.model_validate({"name": "s", "description": "", "stop_early": True, "probes": [probe]})


def test_lm_eval_sends_the_choices_of_one_batch_together() -> None:
    probe = {"probe": "accuracy", "tasks": ["a", "b"], "expected_items": {"a": 10, "b": 12}, "batches": 4}
    assert suite_of(probe).quality_requests == 6
    assert suite_of(probe | {"choices": 3}).quality_requests == 18


def test_what_is_scored_token_by_token_does_not_wait_for_a_batch() -> None:
    fidelity = {
        "probe": "fidelity", "documents": 8, "context_tokens": [50, 100], "decode_tokens": 16, "batches": 4,
    }  # fmt: skip
    retrieval = {
        "probe": "retrieval",
        "families": ["needle"],
        "context_tokens": [256, 512],
        "items_per_cell": 5,
    }
    assert (
        suite_of(fidelity).quality_requests is None
    )  # documents are sent again until it is as many as declared
    assert suite_of(fidelity).prompt_tokens_in_flight(concurrency=4) == 2 * 100
    assert suite_of(fidelity | {"context_tokens": 100}).prompt_tokens_in_flight(concurrency=4) == 4 * 100
    assert suite_of(retrieval).quality_requests == 10
    assert suite_of(retrieval).prompt_tokens_in_flight(concurrency=4) == 4 * 256


@pytest.mark.parametrize(
    ("before", "after", "is_met"),
    [(None, 256, False), (None, 8, True), (8, 64, True), (64, 128, False), (64, 64, True), (128, 4, True)],
)
def test_another_limit_on_sequences_has_to_be_met(before: int | None, after: int, is_met: bool) -> None:
    baseline = {"scheduling": {"max_num_seqs": before}} if before else {}
    plan = plan_of({**FP8, "scheduling": {"max_num_seqs": after}}, baseline=baseline, concurrency=16)
    gap = f"max_num_seqs {after}: 16 requests are in flight, and no more wait"
    assert plan.coverage_gaps == (() if is_met else (gap,))


def test_offloaded_blocks_have_to_come_back() -> None:
    plan = plan_of({"reuse": {"prefix_caching": True, "offload_gib": 4}}, suite=get_suite("reuse"))
    assert plan.coverage_gaps == ("offload_gib: no probe brings a block back from the host",)


@pytest.mark.parametrize(
    ("eviction", "evicts"),
    [
        ({"policy": "none"}, True),
        ({"policy": "sliding_window", "window": 640}, False),
        ({"policy": "sliding_window", "window": 512}, True),
        ({"policy": "streaming_llm", "sinks": 4, "window": 636}, False),
        ({"policy": "streaming_llm", "sinks": 4, "window": 635}, True),
        ({"policy": "topk", "k": 640}, False),
        ({"policy": "topk", "k": 639}, True),
        ({"policy": "h2o", "budget_tokens": 600}, True),
        ({"policy": "knorm", "budget_tokens": 600}, False),  # the prompt has 512, and what is decoded stays
        ({"policy": "snapkv", "budget_tokens": 512}, False),
        ({"policy": "snapkv", "budget_tokens": 511}, True),
        ({"policy": "keydiff", "evicted_fraction": 0.5}, True),
    ],
)
def test_a_policy_that_evicts_nothing_of_any_sequence_passes_nothing(
    eviction: dict[str, Any], evicts: bool
) -> None:
    """The longest sequence of this suite has 512 tokens of prompt and 128 decoded."""
    none, config = KVConfig(), KVConfig.model_validate({"eviction": eviction})
    gaps = [*gaps_of_features(none, config, get_suite("smoke"), concurrency=1, layers=6)]
    assert gaps == (
        [] if evicts else [f"{eviction['policy']} keeps all of every sequence, of up to 640 tokens"]
    )


def test_lengths_that_only_the_tasks_know_outgrow_no_window_but_lose_a_share() -> None:
    share, window = (
        {"policy": "snapkv", "evicted_fraction": 0.5},
        {"policy": "sliding_window", "window": 64},
    )
    found = [
        [
            *gaps_of_features(
                KVConfig(), KVConfig.model_validate({"eviction": e}), ACCURACY_ONLY, concurrency=1, layers=6
            )
        ]
        for e in (share, window)
    ]
    assert found == [[], ["sliding_window keeps all of every sequence, of up to 0 tokens"]]


def test_a_batch_budget_that_splits_no_prompt_is_not_tried() -> None:
    """16 prompts of 512 tokens in flight: 8,192 tokens."""
    assert plan_of({"scheduling": {"max_num_batched_tokens": 8191}}).coverage_gaps == ()
    (gap,) = plan_of({"scheduling": {"max_num_batched_tokens": 8192}}).coverage_gaps
    assert "none is split" in gap
    same = {"scheduling": {"max_num_batched_tokens": 8192}, "reuse": {"prefix_caching": False}}
    assert plan_of(FP8, baseline=same).coverage_gaps == ()


def test_prefix_caching_needs_a_probe_that_meets_a_warm_cache() -> None:
    reuse = {"reuse": {"prefix_caching": True}}
    assert plan_of(reuse).coverage_gaps == ()
    assert plan_of(reuse, suite=ACCURACY_ONLY).coverage_gaps == (
        "prefix_caching: no probe meets a warm cache",
    )


def test_all_features_of_a_change_are_launched_and_measured_together() -> None:
    together = {
        "quantization": {"scheme": "fp8_e5m2"},
        "eviction": {"policy": "sliding_window", "window": 256},
        "reuse": {"prefix_caching": True},
        "scheduling": {"max_num_batched_tokens": 256, "max_num_seqs": 8},
    }
    plan = plan_of(together, max_context=640)
    words = plan.candidate.serve_flags
    assert {"fp8_e5m2", "--enable-prefix-caching", "--hf-overrides", "256", "8"} <= set(words)
    assert plan.modes == ("cold", "warm")
    assert plan.coverage_gaps == ()


def test_an_open_deployment_is_said_to_be_open() -> None:
    assert plan_of(FP8, max_context=640, decode_tokens=128).undeclared is None
    said = plan_of({**FP8, "scheduling": {"max_model_len": 4096}}, decode_tokens=64).undeclared
    assert said == (
        "The deployment declares no max_context: the verdict speaks of sequences of up to 640 tokens, 128 of them "
        "decoded, while the candidate serves up to 4,096."
    )
    assert plan_of(FP8, suite=ACCURACY_ONLY).undeclared is None


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_covered_and_declare_their_deployment(path: Path) -> None:
    change = Change.model_validate(parse_document(path.read_text(encoding="utf-8")))
    suite = get_suite(change.suite)
    plan = make_plan(
        change, model=Model(name=change.model, source="/m", shape=SHAPE), suite=suite,
        policy=get_policy(change.policy or suite.policy), device="cpu", allowed_arguments=frozenset(),
    )  # fmt: skip
    assert plan.coverage_gaps == ()
    assert plan.undeclared is None


@pytest.mark.parametrize("name", list_names("suites", None))
def test_a_bundled_suite_has_a_probe_for_every_rule_of_its_own_policy(name: str) -> None:
    suite = get_suite(name)
    plan = make_plan(
        Change.model_validate({"model": "m", "suite": name, "candidate": FP8}),
        model=Model(name="m", source="/m", shape=SHAPE.model_copy(update={"max_context": 32768})), suite=suite,
        policy=get_policy(suite.policy), device="cpu", allowed_arguments=frozenset(),
    )  # fmt: skip
    assert [seen for seen in foresee(plan) if "the suite has no" in seen.sentence] == []


@pytest.mark.parametrize("name", list_names("suites", None))
def test_sequences_of_a_saturated_pool_outgrow_a_block_when_all_have_been_admitted(name: str) -> None:
    for probe in get_suite(name).probes:
        if isinstance(probe, SaturatedProbe):
            grown = -probe.context_tokens % BLOCK_MULTIPLE
            assert probe.decode_tokens / 4 < grown < probe.decode_tokens * 3 / 4


def test_a_load_that_is_not_declared_is_no_more_than_the_documents() -> None:
    suite = suite_of({"probe": "fidelity", "documents": 8, "context_tokens": 100, "decode_tokens": 16})
    pieces = {**FP8, "scheduling": {"max_num_batched_tokens": 1_000}}
    gap = "max_num_batched_tokens 1000: all prompts in flight have 800 tokens, so none is split"
    assert plan_of(pieces, suite=suite).coverage_gaps == (gap,)
    assert plan_of(pieces, suite=suite, concurrency=16).coverage_gaps == ()
