"""Forced decoding inside vLLM: leave only the reference token, while `logprobs` still shows the raw distribution.

A request carries `vllm_xargs={"forced_token_ids": [...]}`; step i of its decode can then only yield token i of the
list. vLLM has two interfaces for this and chooses by its model runner, so the one class that it loads serves both: the
V1 runner (CPU) addresses requests by their place in the batch, model runner V2 (GPU) by a slot of their own. Only
vLLM's own processes import this.

It also sees in how many pieces a prompt is computed, which no metric of vLLM says: steps that yield no token are not
counted there. A forced request whose prompt took more than one is told in one line of the engine's log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor.interface import LogitsProcessor as V1LogitsProcessor
from vllm.v1.sample.logits_processor.interface import MoveDirectionality
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor as V2LogitsProcessor

from workers.engines.vllm_effective import PIECES

if TYPE_CHECKING:
    import torch
    from vllm import SamplingParams
    from vllm.v1.sample.logits_processor.interface import BatchUpdate
    from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext

ARGUMENT = "forced_token_ids"


def forced_tokens_of(params: SamplingParams) -> list[int] | None:
    """The request's reference tokens, or None. Raises ValueError if they are not token ids."""
    tokens = (params.extra_args or {}).get(ARGUMENT)
    if tokens is None:
        return None
    if not isinstance(tokens, list) or not all(isinstance(token, int) and token >= 0 for token in tokens):
        raise ValueError(f"{ARGUMENT} must be a list of token ids")
    return tokens


def tell_pieces(pieces: int) -> None:
    """Write into the log in how many pieces a prompt was computed."""
    if pieces > 1:
        print(f"{PIECES}{pieces}", flush=True)


@dataclass(kw_only=True, slots=True)
class ForcedRequest:
    """A request under way in the V1 runner. `output`: vLLM's own running list of its tokens."""

    tokens: list[int]
    output: list[int]
    pieces: int = 0
    is_told: bool = False

    def step(self) -> None:
        """One more pass of the model is about to begin."""
        if not self.output:
            self.pieces += 1
        elif not self.is_told:
            self.is_told = True
            tell_pieces(self.pieces)


class BatchPlaces:
    """Requests by their index in the batch."""

    def __init__(self) -> None:
        self._requests: dict[int, ForcedRequest] = {}

    def step(self, batch_update: BatchUpdate | None) -> None:
        """Called before each pass of the model, with what has changed in the batch."""
        if batch_update is not None:
            self._update(batch_update)
        for request in self._requests.values():
            request.step()

    def _update(self, batch_update: BatchUpdate) -> None:
        """Follow the batch: requests leave, enter and move, in this order, as vLLM documents."""
        for index in batch_update.removed:
            self._leave(index)
        for index, params, _prompt, output in batch_update.added:
            tokens = forced_tokens_of(params)
            self._leave(index)
            if tokens is not None:
                self._requests[index] = ForcedRequest(tokens=tokens, output=output)
        for source, target, direction in batch_update.moved:
            self._move(source, target, swap=direction == MoveDirectionality.SWAP)

    def _leave(self, index: int) -> None:
        """A request is over; one that had a single token to yield has not been told yet."""
        request = self._requests.pop(index, None)
        if request is not None and request.output:
            request.step()

    def _move(self, source: int, target: int, *, swap: bool) -> None:
        moving, standing = self._requests.pop(source, None), self._requests.pop(target, None)
        if moving is not None:
            self._requests[target] = moving
        if swap and standing is not None:
            self._requests[source] = standing

    def due(self) -> Iterator[tuple[int, int]]:
        """(row of the logits, token) of every request that is forced in this step."""
        for index, request in self._requests.items():
            if len(request.output) < len(request.tokens):
                yield index, request.tokens[len(request.output)]


class RequestSlots:
    """Requests by their persistent slot. `prompt_lengths`: vLLM's own array, by slot."""

    def __init__(self, prompt_lengths: Any) -> None:
        self._prompt_lengths = prompt_lengths
        self._tokens: dict[int, list[int]] = {}
        self._pieces: dict[int, int] = {}

    def enter(self, slot: int, params: SamplingParams) -> bool:
        """Take over a slot, whoever had it before; say whether its new request is forced."""
        self._tokens.pop(slot, None)
        self._pieces[slot] = 0
        tokens = forced_tokens_of(params)
        if tokens is not None:
            self._tokens[slot] = tokens
        return tokens is not None

    def due(self, rows: int, context: LogitsContext) -> Iterator[tuple[int, int]]:
        """(row of the logits, token) of every request that is forced in this step.

        Raises ValueError under speculative decoding, which has several rows per request.
        """
        slots = context.idx_mapping_np
        if rows != len(slots):
            raise ValueError("forced tokens do not work with speculative decoding")
        for row, (slot, visible) in enumerate(zip(slots, context.seq_lens_upper_bound_np, strict=False)):
            tokens = self._tokens.get(int(slot), [])
            step = int(visible) - int(self._prompt_lengths[slot])
            self._count(int(slot), step)
            if 0 <= step < len(tokens):
                yield row, tokens[step]

    def _count(self, slot: int, step: int) -> None:
        """`step` is negative while a prompt is not complete."""
        if slot in self._tokens and step <= 0:
            self._pieces[slot] += 1
        if slot in self._tokens and step == 0:
            tell_pieces(self._pieces[slot])


class ForcedTokens(V1LogitsProcessor, V2LogitsProcessor):
    """What vLLM loads. V1 hands over (device, is_pin_memory) after its configuration, V2 its request states."""

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        self._places = BatchPlaces()
        self._slots = RequestSlots(runner[0].prompt_len.np) if len(runner) == 1 else None

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a malformed list when the request is admitted."""
        forced_tokens_of(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """False: forcing changes the greedy choice."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """V1: a pass of the model is about to begin."""
        self._places.step(batch_update)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """V2: a request enters a slot."""
        assert self._slots is not None  # only the V2 runner calls this
        return self._slots.enter(req_idx, sampling_params)

    def apply(self, logits: torch.Tensor, ctx: LogitsContext | None = None) -> torch.Tensor:
        """Mask `logits` (rows, vocabulary) in place to the reference token of each forced request."""
        slots = self._slots if ctx is not None else None
        for row, token in self._places.due() if slots is None else slots.due(len(logits), ctx):
            logits[row].fill_(-math.inf)
            logits[row, token] = 0.0
        return logits
