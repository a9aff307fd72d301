"""Forced decoding against the installed vLLM's own loaders and both of its interfaces."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import _load_logitsprocs_by_fqcns
from vllm.v1.sample.logits_processor.interface import BatchUpdate, MoveDirectionality
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext
from vllm.v1.worker.gpu.sample.logits_processor.loader import _load_v2_logitsprocs_by_fqcns

from workers.engines.forced_tokens import ForcedTokens
from workers.engines.vllm import FORCED_TOKENS
from workers.engines.vllm_effective import PIECES

VOCABULARY = 10


def forced(*tokens: int) -> SamplingParams:
    return SamplingParams(extra_args={"forced_token_ids": list(tokens)})


def chosen(processor: ForcedTokens, rows: int, context: LogitsContext | None = None) -> list[int | None]:
    """The only token left in each row, None where the row is untouched."""
    logits = processor.apply(torch.zeros(rows, VOCABULARY), context)
    finite = torch.isfinite(logits)
    return [int(row.nonzero()[0]) if int(row.sum()) == 1 else None for row in finite]


def test_both_of_vllms_loaders_accept_the_class() -> None:
    assert _load_logitsprocs_by_fqcns([FORCED_TOKENS]) == [ForcedTokens]
    assert _load_v2_logitsprocs_by_fqcns([FORCED_TOKENS]) == [ForcedTokens]


def test_the_v1_runner_forces_by_place_in_the_batch_through_every_move() -> None:
    processor = ForcedTokens(None, torch.device("cpu"), False)
    first: list[int] = []
    second: list[int] = []
    added = [(0, forced(3, 4), None, first), (1, SamplingParams(), None, []), (2, forced(5), None, second)]
    processor.update_state(BatchUpdate(batch_size=3, removed=[], added=added, moved=[]))
    assert chosen(processor, 3) == [3, None, 5]
    first.append(3)
    second.append(5)
    assert chosen(processor, 3) == [4, None, None]
    swap = [(0, 1, MoveDirectionality.SWAP)]
    processor.update_state(BatchUpdate(batch_size=3, removed=[2], added=[], moved=swap))
    assert chosen(processor, 2) == [None, 4]
    processor.update_state(None)
    processor.update_state(BatchUpdate(batch_size=1, removed=[1], added=[], moved=[]))
    assert chosen(processor, 1) == [None]


def test_the_v1_runner_tells_how_many_passes_a_prompt_took(capsys: pytest.CaptureFixture[str]) -> None:
    processor = ForcedTokens(None, torch.device("cpu"), False)
    output: list[int] = []
    short: list[int] = []
    added = [(0, forced(3, 4), None, output), (1, forced(5), None, short)]
    processor.update_state(BatchUpdate(batch_size=2, removed=[], added=added, moved=[]))
    short.append(5)
    processor.update_state(BatchUpdate(batch_size=1, removed=[1], added=[], moved=[]))
    processor.update_state(None)
    assert capsys.readouterr().out == ""
    output.append(3)
    processor.update_state(None)
    processor.update_state(BatchUpdate(batch_size=0, removed=[0], added=[], moved=[]))
    assert capsys.readouterr().out == f"{PIECES}3\n"


def test_a_prompt_in_pieces_with_one_token_to_yield_is_told_when_it_leaves(
    capsys: pytest.CaptureFixture[str],
) -> None:
    processor = ForcedTokens(None, torch.device("cpu"), False)
    output: list[int] = []
    added = [(0, forced(3), None, output)]
    processor.update_state(BatchUpdate(batch_size=1, removed=[], added=added, moved=[]))
    processor.update_state(None)
    output.append(3)
    processor.update_state(BatchUpdate(batch_size=0, removed=[0], added=[], moved=[]))
    assert capsys.readouterr().out == f"{PIECES}2\n"


def test_the_v2_runner_tells_how_many_passes_a_prompt_took(capsys: pytest.CaptureFixture[str]) -> None:
    processor = ForcedTokens(None, SimpleNamespace(prompt_len=SimpleNamespace(np=np.array([9]))))
    for expected in (f"{PIECES}3\n", ""):
        processor.add_request(0, forced(8, 9))
        for visible in (4, 8, 9, 10) if expected else (9, 10):
            chosen(processor, 1, context([0], [visible]))
        assert capsys.readouterr().out == expected


def context(slots: list[int], visible: list[int]) -> LogitsContext:
    rows: dict[str, Any] = dict.fromkeys(
        ("expanded_idx_mapping", "idx_mapping", "expanded_local_pos", "input_ids", "pos")
    )
    return LogitsContext(**rows, idx_mapping_np=np.array(slots), seq_lens_upper_bound_np=np.array(visible))


def test_the_v2_runner_forces_by_slot_and_a_recycled_slot_forgets_its_past() -> None:
    prompt_lengths = np.array([5, 7, 2])
    processor = ForcedTokens(None, SimpleNamespace(prompt_len=SimpleNamespace(np=prompt_lengths)))
    assert processor.add_request(2, forced(8, 9))
    assert not processor.add_request(0, SamplingParams())
    assert chosen(processor, 2, context([2, 0], [2, 5])) == [8, None]
    assert chosen(processor, 2, context([0, 2], [6, 3])) == [None, 9]
    assert chosen(processor, 1, context([2], [4])) == [None]
    assert not processor.add_request(2, SamplingParams())
    assert chosen(processor, 1, context([2], [2])) == [None]


def test_speculative_decoding_is_refused_rather_than_forced_wrongly() -> None:
    processor = ForcedTokens(None, SimpleNamespace(prompt_len=SimpleNamespace(np=np.array([1]))))
    processor.add_request(0, forced(1))
    with pytest.raises(ValueError, match="speculative decoding"):
        processor.apply(torch.zeros(3, VOCABULARY), context([0], [1]))


@pytest.mark.parametrize("tokens", ["12", [1, -2], [1.5], {"a": 1}])
def test_what_is_no_list_of_token_ids_is_refused_at_admission(tokens: object) -> None:
    with pytest.raises(ValueError, match="token ids"):
        ForcedTokens.validate_params(SamplingParams(extra_args={"forced_token_ids": tokens}))
