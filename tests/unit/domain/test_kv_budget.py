"""What budgets come to, layer by layer."""

from typing import Any

import pytest

from gatekeeper.domain.eviction import Eviction
from gatekeeper.domain.kv_account import MemoryAccount, MemoryQuestion, memory_account
from gatekeeper.domain.kv_budget import kept_by_layer
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.kv_memory import ModelShape

SHAPE = ModelShape(layers=30, attention_heads=9, kv_heads=3, head_dim=64, max_context=8192)


def eviction(**fields: Any) -> Eviction:
    return KVConfig.model_validate({"eviction": fields}).eviction


def pyramid(share: float, window: int = 8) -> Eviction:
    return eviction(policy="pyramidkv", evicted_fraction=share, observation_window=window)


def account(evicted: Eviction, **question: Any) -> MemoryAccount:
    return memory_account(SHAPE, MemoryQuestion(eviction=evicted, context=1000, **question))


@pytest.mark.parametrize("layers", [1, 2, 3, 30, 80])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.77, 0.9, 0.995])
@pytest.mark.parametrize("prompt", [1, 7, 60, 1000])
def test_a_pyramid_evicts_the_share_that_any_other_policy_evicts(
    layers: int, share: float, prompt: int
) -> None:
    kept = kept_by_layer(pyramid(share), prompt, layers=layers)
    (even,) = kept_by_layer(eviction(policy="knorm", evicted_fraction=share), prompt, layers=1)
    assert sum(kept) == layers * even
    assert len(kept) == layers
    assert list(kept) == sorted(kept, reverse=True)
    assert 1 <= kept[-1] <= kept[0] <= prompt


def test_a_pyramid_falls_linearly_to_a_twentieth_of_the_mean_beyond_the_window() -> None:
    """2,000 tokens, window 8, 208 stay on average: 200 beyond the window, from 390 down to 10 in 20 steps of 19."""
    kept = kept_by_layer(pyramid(0.896), 2000, layers=21)
    assert kept == tuple(8 + 390 - 19 * layer for layer in range(21))


def test_a_pyramid_whose_lowest_layer_would_keep_more_than_there_is_has_a_higher_top() -> None:
    kept = kept_by_layer(pyramid(0.3), 1000, layers=3)
    assert kept == (1000, 700, 400)


def test_a_budget_within_the_window_is_even() -> None:
    assert kept_by_layer(pyramid(0.9, window=64), 100, layers=4) == (10,) * 4


def test_other_policies_keep_as_much_in_each_layer_and_decoded_tokens_stay() -> None:
    snapkv = eviction(policy="snapkv", evicted_fraction=0.5)
    assert kept_by_layer(snapkv, 1000, layers=3, decode_tokens=200) == (600,) * 3
    fallen = kept_by_layer(pyramid(0.5), 1000, layers=30, decode_tokens=200)
    assert sum(fallen) == 30 * 600
    assert min(fallen) >= 200 + 8


def test_the_account_counts_each_layer_with_what_it_keeps() -> None:
    got = account(pyramid(0.5))
    even = account(eviction(policy="snapkv", evicted_fraction=0.5))
    assert got.tokens_kept_by_layer == kept_by_layer(pyramid(0.5), 1000, layers=30)
    assert (got.tokens_kept, even.tokens_kept_by_layer) == (500, ())
    assert got.bytes_per_sequence == even.bytes_per_sequence
    assert any("layers keep from 32 to 968 tokens" in note for note in got.notes)


def test_blocks_are_rounded_up_in_each_layer() -> None:
    kept = kept_by_layer(pyramid(0.5), 1000, layers=30)
    per_token = 3 * 64 * 2 * 2
    expected = sum(-(-tokens // 16) * 16 * per_token for tokens in kept)
    assert account(pyramid(0.5), block_size=16).bytes_per_sequence == expected


def test_in_a_hybrid_model_layers_count_with_their_mean() -> None:
    hybrid = SHAPE.model_copy(update={"window_layers": 10, "window": 64})
    got = memory_account(hybrid, MemoryQuestion(eviction=pyramid(0.5), context=1000))
    assert got.bytes_per_sequence == (20 * 500 + 10 * 64) * 3 * 64 * 2 * 2
    assert any("their mean" in note for note in got.notes)


@pytest.mark.parametrize("policy", ["snapkv", "pyramidkv", "h2o", "tova"])
def test_a_share_that_skipped_layers_do_not_give_up_leaves_the_others(policy: str) -> None:
    window = {"observation_window": 8} if policy == "pyramidkv" else {}
    skipping = eviction(policy=policy, evicted_fraction=0.5, skip_layers=[0, 5], **window)
    kept = kept_by_layer(skipping, 100, layers=6)
    assert kept[0] == kept[5] == 100
    assert sum(kept) == 6 * 50
    assert max(kept[1:5]) - min(kept[1:5]) == (34 if policy == "pyramidkv" else 0)


def test_a_budget_in_tokens_and_a_window_are_those_of_the_other_layers() -> None:
    skipping = eviction(policy="tova", budget_tokens=20, skip_layers=[1])
    assert kept_by_layer(skipping, 100, layers=3, decode_tokens=40) == (60, 100, 60)
    window = eviction(policy="streaming_llm", sinks=4, window=26, skip_layers=[2])
    assert kept_by_layer(window, 100, layers=3) == (30, 30, 100)


def test_the_account_pairs_what_each_layer_keeps_with_how_it_stores_it() -> None:
    """30 layers: 0 keeps all in 16 bits, 1 keeps all in 8 bits, 2 keeps its budget in 16 bits, the others in 8."""
    question = MemoryQuestion.model_validate(
        {
            "context": 1000,
            "eviction": {"policy": "tova", "budget_tokens": 100, "skip_layers": [0, 1]},
            "quantization": {"scheme": "fp8_e4m3", "skip_layers": [0, 2]},
        }
    )
    vectors = 3 * 64 * 2
    expected = vectors * (1000 * 2 + 1000 * 1 + 100 * 2 + 27 * 100 * 1)
    got = memory_account(SHAPE, question)
    assert got.bytes_per_sequence == expected
    assert got.bytes_per_token == vectors * (2 * 2 + 28 * 1)
    assert got.tokens_kept == (2 * 1000 + 28 * 100) // 30


def test_turboquants_own_layers_and_skipped_ones_are_counted_once() -> None:
    question = MemoryQuestion.model_validate(
        {"context": 100, "quantization": {"scheme": "turboquant_k8v4", "skip_layers": [1, 7]}}
    )
    plain = MemoryQuestion(context=100)
    of_layer = memory_account(SHAPE, plain).bytes_per_sequence / 30
    told = memory_account(SHAPE, question).bytes_per_sequence
    untold = memory_account(
        SHAPE, MemoryQuestion.model_validate({"context": 100, "quantization": {"scheme": "turboquant_k8v4"}})
    ).bytes_per_sequence
    quantized = (untold - 4 * of_layer) / 26
    assert told == pytest.approx(5 * of_layer + 25 * quantized)
