"""PyramidKV in the engine: budgets by layer, and in each the tokens that SnapKV would choose."""

import torch

from gatekeeper.domain.kv_budget import kept_by_layer
from gatekeeper.domain.kv_config import KVConfig
from tests.unit.reference.tiny import KV_HEADS, LAYERS, runner, tokens

PYRAMID = {"policy": "pyramidkv", "evicted_fraction": 0.5, "observation_window": 6}
TEXT = tokens(60)


def test_each_layer_holds_its_budget_of_the_tokens_that_snapkv_chooses() -> None:
    context = runner({"eviction": PYRAMID}).read_prompt(TEXT)
    budgets = kept_by_layer(KVConfig.model_validate({"eviction": PYRAMID}).eviction, 60, layers=LAYERS)
    assert [layer.held_tokens for layer in context.layers] == list(budgets) == [53, 7]
    for index, budget in enumerate(budgets):
        same = {"policy": "snapkv", "budget_tokens": budget, "observation_window": 6}
        snapkv = runner({"eviction": same}).read_prompt(TEXT).layers[index]
        assert torch.equal(context.layers[index].positions, snapkv.positions)


def test_layers_of_different_lengths_decode_together_and_keep_what_is_decoded() -> None:
    run = runner({"eviction": PYRAMID})
    context = run.read_prompt(TEXT[:40])
    before = [layer.held_tokens for layer in context.layers]
    for token in TEXT[40:]:
        run.advance([context], [token])
    assert [layer.held_tokens for layer in context.layers] == [held + 20 for held in before]
    assert all(
        layer.positions[:, -20:].tolist() == [list(range(40, 60))] * KV_HEADS for layer in context.layers
    )


def test_all_layers_together_take_half_of_the_full_cache() -> None:
    context, full = runner({"eviction": PYRAMID}).read_prompt(TEXT), runner().read_prompt(TEXT)
    assert context.nbytes * 2 == full.nbytes
    assert context.held_tokens == 30
