"""Layers that the reference engine leaves as they are."""

import pytest
import torch

from gatekeeper.domain.kv_account import MemoryQuestion, sequence_bytes
from gatekeeper.domain.kv_memory import kv_bytes_per_token
from tests.unit.reference.nuq_tiny import nuq_runner, scheme
from tests.unit.reference.tiny import SHAPE, model, runner, tokens
from workers.engines.reference.meter import measure_cache

TEXT = tokens(60)


def test_a_skipped_layer_stores_sixteen_bits_and_the_other_what_the_scheme_says() -> None:
    skipping = {"quantization": {"scheme": "int8", "skip_layers": [1]}}
    context = runner(skipping).read_prompt(TEXT)
    assert [layer.keys.stored_type for layer in context.layers] == ["int8", "bfloat16"]
    plain, all_int8 = (
        runner(config).read_prompt(TEXT) for config in ({}, {"quantization": {"scheme": "int8"}})
    )
    assert context.nbytes * 2 == plain.nbytes + all_int8.nbytes
    assert torch.equal(context.layers[0].keys.read(), all_int8.layers[0].keys.read())


def test_a_layer_that_kvquant_skips_is_that_of_the_full_cache_and_the_account_has_both() -> None:
    run, quantization = nuq_runner(3, skip_layers=[0]), scheme(3, skip_layers=[0])
    context, plain = run.read_prompt(TEXT), runner().read_prompt(TEXT)
    assert [layer.keys.stored_type for layer in context.layers] == ["bfloat16", "uint8"]
    assert torch.equal(context.layers[0].keys.read(), plain.layers[0].keys.read())
    assert torch.equal(context.layers[0].values.read(), plain.layers[0].values.read())
    measured = measure_cache(run, longest=80, vocabulary=model().config.vocab_size, step=1)
    assert measured.sixteen_bit_layers == (0,)
    assert measured.bytes_of_one_more == pytest.approx(kv_bytes_per_token(SHAPE, quantization), rel=0.01)
    question = MemoryQuestion(quantization=quantization, context=80)
    assert measured.nbytes == pytest.approx(sequence_bytes(SHAPE, question), rel=0.01)


def test_a_skipped_layer_keeps_everything_and_the_others_give_up_its_share() -> None:
    eviction = {"policy": "snapkv", "evicted_fraction": 0.25, "observation_window": 4, "skip_layers": [0]}
    run = runner({"eviction": eviction})
    context = run.read_prompt(TEXT[:40])
    assert [layer.held_tokens for layer in context.layers] == [40, 20]
    for token in TEXT[40:]:
        run.advance([context], [token])
    assert [layer.held_tokens for layer in context.layers] == [60, 40]


def test_a_skipped_layer_sees_beyond_a_window() -> None:
    eviction = {"policy": "sliding_window", "window": 5, "skip_layers": [0]}
    context = runner({"eviction": eviction}).read_prompt(TEXT)
    assert [layer.held_tokens for layer in context.layers] == [60, 5]
    plain = runner().read_prompt(TEXT)
    assert torch.equal(context.layers[0].keys.read(), plain.layers[0].keys.read())
    layer = context.layers[0]
    assert layer.policy.sees(torch.tensor([59]), layer.positions) is None


def test_the_engine_measures_each_layer_and_bytes_to_the_last() -> None:
    config = {
        "quantization": {"scheme": "int8", "skip_layers": [1]},
        "eviction": {"policy": "tova", "evicted_fraction": 0.25, "skip_layers": [0]},
    }
    measured = measure_cache(runner(config), longest=80, vocabulary=model().config.vocab_size, step=1)
    assert measured.held_by_layer == (80, 40)
    assert measured.sixteen_bit_layers == (1,)
    assert measured.stored_types == {"int8": 1, "bfloat16": 1}
    per_token_int8, per_token_plain = 2 * 2 * (32 + 4), 2 * 2 * 32 * 2
    assert measured.nbytes == 80 * per_token_int8 + 40 * per_token_plain
