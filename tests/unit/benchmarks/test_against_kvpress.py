"""The comparison with kvpress on a small random model; our own engine or a stub stands in for kvpress."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import against_kvpress
import kvpress_kept
import pytest
import torch
from against_kvpress import (
    ROWS,
    Compared,
    Row,
    as_it_is,
    compared,
    jaccard,
    line,
    once_after_the_prompt,
    runner_of,
)
from kvpress_kept import FULL, PRESSES, Kept, mean_nll, places, watch
from methods import forced

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
    return list(runner_of(model(), row, theirs).read_prompt(TEXT[:CONTEXT]).layers)


def test_without_eviction_both_parts_measure_the_same_likelihood() -> None:
    (ours,) = compared(model(), [record(FULL, [], share=0.0)])
    assert ours.nll == pytest.approx(mean_nll(model("sdpa"), TEXT, None), abs=1e-5)


def test_rows_decoded_together_are_what_each_is_by_itself() -> None:
    """By the engine's own way through prompt and decode, of which the benchmark takes a short cut."""
    theirs = [record(policy, newest(60), share=0.5) for policy in PRESSES]
    found = list(compared(model(), theirs))
    assert [each.row for each in found] == list(ROWS[1:])
    for each in found:
        run = runner_of(model(), each.row, each.theirs)
        context = run.read_prompt(TEXT[:CONTEXT])
        alike = [
            jaccard(heads, newest(60)[0][0]) for layer in context.layers for heads in layer.positions.tolist()
        ]
        assert (each.kept, each.alike) == (context.held_tokens, alike)
        rows = list(forced(run, [context], [TEXT[CONTEXT:]]))
        nll = -sum(float(row[0, token]) for row, token in zip(rows, TEXT[CONTEXT:], strict=True)) / len(rows)
        assert each.nll == pytest.approx(nll, abs=1e-5)


@pytest.mark.parametrize("row", ROWS[1:], ids=lambda row: f"{row.policy} {row.alteration.__name__}")
def test_a_row_agrees_with_itself_and_keeps_the_share(row: Row) -> None:
    kept = [layer.positions.tolist() for layer in layers_of(row, record(row.policy, newest(64)))]
    found = [each for each in compared(model(), [record(row.policy, kept)]) if each.row == row]
    assert [(set(each.alike), each.kept) for each in found] == [({1.0}, 64)]


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
    row = Row(name="Knorm", policy="knorm")
    assert line([Compared(row=row, theirs=theirs, kept=64.0, alike=[0.5, 1.0], nll=1.5)]) == (
        "| Knorm | 0.5 | 64.0 | 64.0 | 0.7500 | 0.500 | 1.5000 | 2.0000 |"
    )
