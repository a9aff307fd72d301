"""Eviction policies in turn and by layer: what may be said, and what it comes to."""

from __future__ import annotations

from typing import Any

import pytest

from gatekeeper.domain.differences import differences
from gatekeeper.domain.documents import parse_change
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.eviction import Eviction, layer_ranges
from gatekeeper.domain.kv_account import MemoryQuestion, memory_account
from gatekeeper.domain.kv_budget import kept_by_layer
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.kv_memory import ModelShape

H2O: dict[str, Any] = {"policy": "h2o", "evicted_fraction": 0.5}
BOUND: dict[str, Any] = {"policy": "streaming_llm", "sinks": 4, "window": 56}
WINDOW: dict[str, Any] = {"policy": "sliding_window", "window": 30}
NONE: dict[str, Any] = {"policy": "none"}
COMPOSED: dict[str, Any] = {"policy": "composed", "prompt": H2O, "decode": BOUND}
PER_LAYER: dict[str, Any] = {
    "policy": "per_layer",
    "groups": [{"layers": [0], "eviction": WINDOW}],
    "other": H2O,
}
SIX = ModelShape(layers=6, attention_heads=4, kv_heads=4, head_dim=64, max_context=8192)


def group(layers: list[int], eviction: dict[str, Any]) -> dict[str, Any]:
    return {"layers": layers, "eviction": eviction}


def eviction(document: dict[str, Any]) -> Eviction:
    return KVConfig.model_validate({"eviction": document}).eviction


def refused(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as raised:
        parse_change({"model": "m", "candidate": {"eviction": document}})
    return {
        problem.field.removeprefix("candidate.eviction."): f"{problem.problem}; {problem.allowed}"
        for problem in raised.value.problems
    }


# --- what may be said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        (COMPOSED | {"decode": H2O}, "decode.policy", "unknown 'h2o'; sliding_window, streaming_llm"),
        (COMPOSED | {"prompt": BOUND}, "prompt.policy", "h2o, snapkv, pyramidkv"),
        (COMPOSED | {"prompt": {"policy": "topk", "k": 4}}, "prompt.policy", "unknown 'topk'"),
        (COMPOSED | {"prompt": COMPOSED}, "prompt.policy", "unknown 'composed'"),
        (COMPOSED | {"decode": PER_LAYER}, "decode.policy", "unknown 'per_layer'"),
        (COMPOSED | {"decode": {**BOUND, "window": 0}}, "decode.window", "got 0"),
        (COMPOSED | {"prompt": {**H2O, "skip_layers": [0]}}, "prompt", "skip_layers has no meaning"),
        ({"policy": "composed", "prompt": H2O}, "decode", "is missing"),
        (PER_LAYER | {"groups": [group([0], COMPOSED)]}, "groups.0.eviction.policy", "unknown 'composed'"),
        (PER_LAYER | {"groups": [group([0], PER_LAYER)]}, "groups.0.eviction.policy", "unknown 'per_layer'"),
        (PER_LAYER | {"other": COMPOSED}, "other.policy", "unknown 'composed'"),
        (PER_LAYER | {"groups": []}, "groups", "at least 1"),
        (PER_LAYER | {"groups": [group([2, 2], WINDOW)]}, "groups.0.layers", "a layer is there twice"),
        (
            PER_LAYER | {"groups": [group([0, 1, 2], WINDOW), group([1, 2], H2O)]},
            "groups",
            "layers 1-2 in several groups",
        ),
        (
            PER_LAYER | {"groups": [group([0], {**WINDOW, "skip_layers": [0]})]},
            "groups.0.eviction",
            "skip_layers has no meaning",
        ),
        (PER_LAYER | {"skip_layers": [0]}, "skip_layers", "unknown key; policy, groups, other"),
    ],
)
def test_what_has_no_meaning_is_refused_by_its_field(
    document: dict[str, Any], field: str, words: str
) -> None:
    found = refused(document)
    assert words in found[field]


def test_a_policy_for_each_layer_has_to_evict_in_one() -> None:
    with pytest.raises(InvalidInput, match="no layer has a policy"):
        parse_change(
            {
                "model": "m",
                "candidate": {"eviction": PER_LAYER | {"groups": [group([0], NONE)], "other": NONE}},
            }
        )


def test_names_say_what_happens_when_and_where() -> None:
    config = KVConfig.model_validate(
        {"quantization": {"scheme": "fp8_e4m3"}, "eviction": COMPOSED | {"skip_layers": [0]}}
    )
    assert config.label == "fp8_e4m3 + h2o(0.5) then streaming_llm(4, 56) without layers 0"
    layers = PER_LAYER | {"groups": [group([0, 1], NONE), group([2, 3, 4, 7], WINDOW)]}
    named = "layers 0-1 full, layers 2-4, 7 sliding_window(30), others h2o(0.5)"
    assert KVConfig.model_validate({"eviction": layers}).label == named
    assert layer_ranges([3]) == "layer 3"


def test_single_policies_are_written_as_they_always_were_so_that_waivers_stay() -> None:
    written = KVConfig.model_validate({"eviction": H2O}).model_dump(mode="json")["eviction"]
    assert written == {"policy": "h2o", "evicted_fraction": 0.5, "budget_tokens": None}


def test_what_differs_is_said_setting_by_setting() -> None:
    before, after = (
        KVConfig.model_validate({"eviction": document}).model_dump(mode="json")
        for document in (PER_LAYER, PER_LAYER | {"groups": [group([0], {**WINDOW, "window": 8})]})
    )
    (row,) = differences(before, after)
    assert (row.setting, row.baseline, row.candidate) == ("eviction.groups.0.eviction.window", "30", "8")


# --- what it comes to ------------------------------------------------------------------------------------------------


def test_the_second_policy_bounds_what_the_first_has_left_and_what_is_decoded() -> None:
    composed = eviction(COMPOSED)
    assert kept_by_layer(composed, 100, layers=2) == (50, 50)
    assert kept_by_layer(composed, 108, layers=2, decode_tokens=8) == (58, 58)
    assert kept_by_layer(composed, 400, layers=2, decode_tokens=300) == (60, 60)
    assert kept_by_layer(composed, 400, layers=2) == (60, 60)


def test_a_composition_skips_layers_as_its_first_policy_would() -> None:
    composed = eviction(COMPOSED | {"prompt": {**H2O, "evicted_fraction": 0.25}, "skip_layers": [1]})
    assert kept_by_layer(composed, 104, layers=2, decode_tokens=4) == (54, 104)
    assert kept_by_layer(composed, 200, layers=2, decode_tokens=100) == (60, 200)


def test_of_no_prompt_nothing_is_left_to_bound() -> None:
    composed = eviction(COMPOSED | {"prompt": {**H2O, "evicted_fraction": 0.25}, "skip_layers": [0, 1, 2, 3]})
    assert kept_by_layer(composed, 0, layers=6) == (0,) * 6


def test_a_pyramid_is_bounded_layer_by_layer() -> None:
    prompt = {"policy": "pyramidkv", "evicted_fraction": 0.5, "observation_window": 4}
    alone = kept_by_layer(eviction(prompt), 100, layers=6)
    composed = kept_by_layer(eviction(COMPOSED | {"prompt": prompt}), 105, layers=6, decode_tokens=5)
    assert composed == tuple(min(kept + 5, 60) for kept in alone)
    assert len(set(composed)) > 2


def test_each_group_of_layers_has_its_own_share_and_pyramid() -> None:
    pyramid = {"policy": "pyramidkv", "evicted_fraction": 0.5, "observation_window": 4}
    document = PER_LAYER | {"groups": [group([0], NONE), group([1, 3], WINDOW)], "other": pyramid}
    kept = kept_by_layer(eviction(document), 110, layers=6, decode_tokens=10)
    fallen = kept_by_layer(eviction(pyramid), 110, layers=3, decode_tokens=10)
    assert kept == (110, 30, fallen[0], 30, fallen[1], fallen[2])


def test_the_account_counts_every_layer_with_its_policy_and_its_scheme() -> None:
    question = MemoryQuestion.model_validate(
        {
            "context": 100,
            "quantization": {"scheme": "fp8_e4m3", "skip_layers": [0]},
            "eviction": PER_LAYER | {"groups": [group([0], NONE), group([1], {"policy": "topk", "k": 4})]},
        }
    )
    got, vectors = memory_account(SIX, question), 4 * 64 * 2
    assert got.bytes_per_sequence == vectors * (100 * 2 + 100 + 4 * 50)
    assert got.tokens_kept_by_layer == (100, 100, 50, 50, 50, 50)
    assert {"top-k attention reads fewer tokens and frees none"} < set(got.notes)
    assert any("whole cache is there" in note for note in got.notes)
