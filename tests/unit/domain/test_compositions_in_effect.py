"""Eviction policies in turn and by layer: which models, engines and suites have them, and how they are verified."""

from __future__ import annotations

from typing import Any

import pytest

from gatekeeper.catalog import get_suite
from gatekeeper.domain.capability import capability_problems
from gatekeeper.domain.coverage import gaps_of_features
from gatekeeper.domain.effective import compare
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.observation import Observation
from gatekeeper.domain.reference_engine import unsupported
from gatekeeper.domain.scope import silent_beforehand
from gatekeeper.domain.vllm_flags import serve_flags
from tests.fakes.engine import SHAPE, fake_plan
from tests.unit.domain.test_compositions import BOUND, COMPOSED, H2O, NONE, PER_LAYER, SIX, WINDOW, group
from tests.unit.domain.test_judge import plan_of

# --- what a model, an engine and a suite have ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (PER_LAYER | {"groups": [group([0, 2], WINDOW)]}, "groups.0.layers"),
        (PER_LAYER | {"groups": [group([0], NONE), group([1], WINDOW)]}, "other"),
        (COMPOSED | {"prompt": {"policy": "tova", "budget_tokens": 9}, "skip_layers": [2]}, "skip_layers"),
        (COMPOSED | {"skip_layers": [0]}, "prompt.evicted_fraction"),
    ],
)
def test_what_a_model_of_two_layers_cannot_do_is_refused_by_its_field(
    document: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        fake_plan({"eviction": document}, engine="reference")
    assert [problem.field for problem in raised.value.problems] == [f"candidate.eviction.{field}"]


@pytest.mark.parametrize("document", [COMPOSED, PER_LAYER], ids=["composed", "per_layer"])
def test_the_reference_engine_takes_it_and_the_others_refuse_it(document: dict[str, Any]) -> None:
    config = KVConfig.model_validate({"eviction": document})
    plan = fake_plan({"eviction": document})
    assert (plan.baseline.engine, plan.candidate.engine) == ("reference", "reference")
    assert f"vLLM does not implement {document['policy']}" in plan.engine_reason
    flags = plan.candidate.serve_flags
    assert KVConfig.model_validate_json(f'{{"eviction": {flags[flags.index("--eviction") + 1]}}}') == config
    with pytest.raises(InvalidInput, match=str(document["policy"])):
        fake_plan({"eviction": document}, engine="vllm")
    with pytest.raises(ValueError, match="does not implement"):
        serve_flags(config, shape=SHAPE)
    problems = capability_problems("sglang", "cuda", config, arm="candidate")
    assert [problem.field for problem in problems] == ["candidate.eviction.policy"]


@pytest.mark.parametrize(
    ("scheme", "document", "field", "allowed"),
    [
        ({"scheme": "kivi", "bits": 2}, COMPOSED, "policy", "none, topk"),
        ({"scheme": "kivi", "bits": 2}, PER_LAYER, "groups.0.eviction.policy", "none, topk"),
        ({"scheme": "kvquant", "bits": 3}, COMPOSED, "prompt.policy", "tova"),
        ({"scheme": "kvquant", "bits": 3}, PER_LAYER, "other.policy", "none, topk, sliding_window"),
    ],
)
def test_a_scheme_that_does_not_go_with_a_part_is_refused_by_that_part(
    scheme: dict[str, Any], document: dict[str, Any], field: str, allowed: str
) -> None:
    config = KVConfig.model_validate({"quantization": scheme, "eviction": document})
    found = {problem.field: problem.allowed for problem in unsupported(config, arm="candidate", shape=SIX)}
    assert found[f"candidate.eviction.{field}"].startswith(allowed)


@pytest.mark.parametrize(
    ("document", "gaps"),
    [
        (COMPOSED | {"decode": {**BOUND, "window": 508}}, ["streaming_llm while decoding"]),
        (
            COMPOSED | {"decode": {**BOUND, "window": 380}},
            ["streaming_llm while decoding"],
        ),  # 256 + 128 tokens
        (COMPOSED | {"decode": {**BOUND, "window": 379}}, []),
        (
            COMPOSED
            | {"prompt": {"policy": "tova", "budget_tokens": 512}, "decode": {**BOUND, "window": 600}},
            ["tova after the prompt"],
        ),
        (PER_LAYER, []),
        (
            PER_LAYER | {"groups": [group([0, 1], {**WINDOW, "window": 640}), group([2], NONE)]},
            ["sliding_window in layers 0-1"],
        ),
        (PER_LAYER | {"other": {"policy": "topk", "k": 640}}, ["topk in the other layers"]),
    ],
)
def test_a_suite_has_to_reach_every_policy_of_a_composition(
    document: dict[str, Any], gaps: list[str]
) -> None:
    config = KVConfig.model_validate({"eviction": document})
    found = [*gaps_of_features(KVConfig(), config, get_suite("smoke"), concurrency=1, layers=6)]
    expected = [f"{name} keeps all of every sequence, of up to 640 tokens" for name in gaps]
    assert found == expected


@pytest.mark.parametrize(
    ("window", "layers", "reaches"),
    [
        (229, 30, True),  # 102 of 512 are left where no layer is skipped, and 128 are decoded
        (230, 30, False),
        (300, 30, False),  # over all layers 307 are left
        (128, None, True),  # of 16 layers or more one is left on the one that is certain not to be skipped
        (129, None, False),
    ],
)
def test_a_bound_has_to_be_reached_in_layers_that_are_not_skipped(
    window: int, layers: int | None, reaches: bool
) -> None:
    document = {
        "policy": "composed", "skip_layers": [*range(15)], "decode": {**WINDOW, "window": window},
        "prompt": {"policy": "snapkv", "evicted_fraction": 0.4},
    }  # fmt: skip
    config = KVConfig.model_validate({"eviction": document})
    gaps = [*gaps_of_features(KVConfig(), config, get_suite("smoke"), concurrency=1, layers=layers)]
    assert gaps == (
        [] if reaches else ["sliding_window while decoding keeps all of every sequence, of up to 640 tokens"]
    )


def test_a_bound_acts_where_the_lowest_layer_of_a_pyramid_outgrows_it() -> None:
    prompt = {"policy": "pyramidkv", "budget_tokens": 100}
    document = COMPOSED | {"prompt": prompt, "decode": {**WINDOW, "window": 240}}
    config = KVConfig.model_validate({"eviction": document})
    known, unknown = (
        [*gaps_of_features(KVConfig(), config, get_suite("smoke"), concurrency=1, layers=layers)]
        for layers in (6, None)
    )
    assert known == []
    assert unknown == ["sliding_window while decoding keeps all of every sequence, of up to 640 tokens"]


@pytest.mark.parametrize(
    ("document", "shows"),
    [
        (COMPOSED, False),
        (PER_LAYER, True),
        (PER_LAYER | {"groups": [group([0], NONE)]}, False),
        (PER_LAYER | {"groups": [group([0], {"policy": "topk", "k": 4})]}, True),
    ],
)
def test_scores_of_a_prompts_own_tokens_show_a_policy_that_acts_before_the_prompt_is_over(
    document: dict[str, Any], shows: bool
) -> None:
    plan = plan_of({"eviction": document})
    assert (silent_beforehand(plan, suite="fidelity", mode="prefill") is None) == shows


# --- how it is verified ----------------------------------------------------------------------------------------------


def observed(document: dict[str, Any], **effective: Any) -> Observation:
    plan = fake_plan({"eviction": document})
    seen = {"eviction": plan.candidate.config.eviction.model_dump(mode="json", exclude_none=True)} | effective
    rows = compare(plan.candidate, EffectiveConfig(**seen))
    (row,) = [row for row in rows if row.setting == "eviction"]
    return row


def held(*tokens: int) -> dict[str, int]:
    return {str(layer): count for layer, count in enumerate(tokens)}


@pytest.mark.parametrize(
    ("after_prompt", "decoded", "then", "agrees"),
    [
        ((50, 50), 18, (60, 60), True),
        ((50, 50), 18, (60, 68), False),  # one layer is not bounded
        ((60, 60), 18, (60, 60), False),  # not what the first policy keeps
        ((50, 50), 4, (54, 54), None),  # the bound was not reached
        ((50, 50), None, None, None),
    ],
)
def test_both_policies_of_a_composition_have_to_be_seen(
    after_prompt: tuple[int, ...], decoded: int | None, then: tuple[int, ...] | None, agrees: bool | None
) -> None:
    row = observed(
        COMPOSED, seen_tokens=100, kept_tokens=50, kept_by_layer=held(*after_prompt), decoded_tokens=decoded,
        kept_after_decoding=None if then is None else held(*then),
    )  # fmt: skip
    assert row.agrees is agrees
    assert bool(row.reason) == (agrees is None)


def test_both_sides_are_said_in_words_and_layers_that_differ_by_name() -> None:
    row = observed(
        COMPOSED, seen_tokens=100, kept_tokens=50, kept_by_layer=held(50, 50), decoded_tokens=18,
        kept_after_decoding=held(60, 68),
    )  # fmt: skip
    assert row.requested == (
        "composed (prompt h2o (evicted_fraction 0.5), decode streaming_llm (sinks 4, window 56))"
    )
    assert row.effective == (
        f"{row.requested}; 50 of 100 tokens kept; 64 of 118 tokens kept after 18 decoded, from 60 to 68 by layer, "
        "layer 1 68 in place of 60"
    )


@pytest.mark.parametrize(
    ("kept", "agrees"), [((30, 50), True), ((50, 30), False), ((40, 40), False), ((100, 100), False)]
)
def test_each_layer_is_held_against_its_own_policy(kept: tuple[int, int], agrees: bool) -> None:
    row = observed(PER_LAYER, seen_tokens=100, kept_tokens=sum(kept) // 2, kept_by_layer=held(*kept))
    assert row.agrees is agrees
    assert "layer 0 sliding_window (window 30)" in row.requested.replace("[0]", "0")
    assert ("in place of" in str(row.effective)) == (not agrees)


@pytest.mark.parametrize(("window", "agrees"), [(30, True), (100, None)])
def test_each_policy_has_to_be_seen_in_layers_of_its_own(window: int, agrees: bool | None) -> None:
    document = PER_LAYER | {"groups": [group([0], {**WINDOW, "window": window})]}
    row = observed(document, seen_tokens=100, kept_tokens=50, kept_by_layer=held(min(window, 100), 50))
    assert row.agrees is agrees


def test_a_bound_is_seen_only_where_a_layer_that_is_not_skipped_reaches_it() -> None:
    document = COMPOSED | {"prompt": {**H2O, "evicted_fraction": 0.25}, "skip_layers": [1]}
    seen = [
        observed(
            document, seen_tokens=104, kept_tokens=78, kept_by_layer=held(52, 104), decoded_tokens=decoded,
            kept_after_decoding=held(min(52 + decoded, 60), 104 + decoded),
        ).agrees
        for decoded in (8, 9)
    ]  # fmt: skip
    assert seen == [None, True]


def test_an_account_without_decoding_is_written_as_it_always_was_so_that_reports_stay() -> None:
    assert "decoded_tokens" not in EffectiveConfig(seen_tokens=3).document
    assert EffectiveConfig(decoded_tokens=3).document["decoded_tokens"] == 3
