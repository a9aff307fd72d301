"""The comparison with kvpress on a small random model; our own engine or a stub stands in for kvpress."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import against_kvpress
import kvpress_kept
import pytest
import torch
from against_kvpress import ROWS, Row, as_it_is, compared, config_of, jaccard, line, once_after_the_prompt
from kvpress_kept import FULL, PRESSES, Kept, mean_nll, places, watch

from tests.unit.reference.tiny import KV_HEADS, LAYERS, model, tokens
from workers.engines.reference.layers import SequenceLayer

CONTEXT = 128
TEXT = tokens(CONTEXT + 6)


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (against_kvpress, kvpress_kept):
            patch.setattr(module, "CONTEXT", CONTEXT)
        yield


def record(policy: str, kept: list[list[list[int]]], share: float = 0.5) -> Kept:
    return Kept(policy=policy, share=share, text="text", tokens=TEXT, kept=kept, nll=0.0)


def newest(count: int) -> list[list[list[int]]]:
    return [[list(range(CONTEXT - count, CONTEXT))] * KV_HEADS] * LAYERS


def layers_of(row: Row, theirs: Kept) -> list[SequenceLayer]:
    kept = [len(layer[0]) for layer in theirs.kept]
    runner = against_kvpress.AsKvpress(
        model=model(), config=config_of(theirs), piece=None, rows=1, alteration=row.alteration, kept=kept
    )
    return list(runner.read_prompt(TEXT[:CONTEXT]).layers)


def test_without_eviction_both_parts_measure_the_same_likelihood() -> None:
    ours = compared(model(), Row(name="full", policy=FULL), record(FULL, [], share=0.0))
    assert ours.nll == pytest.approx(mean_nll(model("sdpa"), TEXT, None), abs=1e-5)


@pytest.mark.parametrize("row", ROWS[1:], ids=lambda row: f"{row.policy} {row.alteration.__name__}")
def test_a_row_agrees_with_itself_and_keeps_the_share(row: Row) -> None:
    kept = [layer.positions.tolist() for layer in layers_of(row, record(row.policy, newest(64)))]
    ours = compared(model(), row, record(row.policy, kept))
    assert set(ours.alike) == {1.0}
    assert ours.kept == 64


def test_every_press_has_a_row_as_our_policy_is() -> None:
    assert [row.policy for row in ROWS if row.alteration is as_it_is] == [FULL, *PRESSES]


def test_streaming_llm_after_the_prompt_keeps_the_same_tokens_but_the_prompt_saw_all_of_itself() -> None:
    theirs = record("streaming_llm", newest(64))
    plain, once = (
        layers_of(Row(name="", policy="streaming_llm", alteration=how), theirs)
        for how in (as_it_is, once_after_the_prompt)
    )
    assert (
        plain[-1].positions.tolist()
        == once[-1].positions.tolist()
        == [[*range(4), *range(68, 128)]] * KV_HEADS
    )
    assert not torch.equal(plain[-1].keys.read(), once[-1].keys.read())


def test_nothing_is_rounded() -> None:
    keys = layers_of(Row(name="", policy="knorm"), record("knorm", newest(64)))[0].keys.read()
    assert not torch.equal(keys, keys.bfloat16().float())


def test_places_are_found_in_any_order_of_what_was_kept() -> None:
    keys = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0))
    chosen = torch.tensor([[7, 1, 4], [0, 8, 3]])
    assert places(keys.gather(1, chosen[..., None].expand(-1, -1, 4)), keys) == [[1, 4, 7], [0, 3, 8]]


def test_a_watched_press_still_compresses_and_tells_what_it_kept() -> None:
    class Newest:
        def compress(self, _module: Any, _hidden: Any, keys: torch.Tensor, values: torch.Tensor) -> Any:
            return keys[:, :, -2:], values[:, :, -2:]

    press, keys = Newest(), torch.arange(24.0).reshape(1, 2, 3, 4)
    kept = watch(press)
    assert torch.equal(press.compress(None, None, keys, keys)[0], keys[:, :, -2:])
    assert kept == [[[1, 2], [1, 2]]]


def test_a_line_has_shares_of_tokens_that_both_keep() -> None:
    assert jaccard([1, 2, 3], [2, 3, 4]) == 0.5
    theirs = replace(record("knorm", newest(64)), nll=2.0)
    ours = [against_kvpress.Compared(kept=64.0, alike=[0.5, 1.0], nll=1.5)]
    assert line(Row(name="Knorm", policy="knorm"), [theirs], ours) == (
        "| Knorm | 0.5 | 64.0 | 64.0 | 0.7500 | 0.500 | 1.5000 | 2.0000 |"
    )
