"""Forced decoding inside vLLM: leave only the reference token, while `logprobs` still shows the raw distribution.

A request carries `vllm_xargs={"forced_token_ids": [...]}`; step i of its decode can then only yield token i.
This is the interface of the V1 model runner, which addresses requests by their index in the batch. Imported by vLLM's
processes only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor.interface import BatchUpdate, LogitsProcessor, MoveDirectionality

if TYPE_CHECKING:
    import torch
    from vllm import SamplingParams

ARGUMENT = "forced_token_ids"


def forced_tokens_of(params: SamplingParams) -> list[int] | None:
    """The request's reference tokens, or None. Raises ValueError if they are not token ids."""
    tokens = (params.extra_args or {}).get(ARGUMENT)
    if tokens is None:
        return None
    if not isinstance(tokens, list) or not all(isinstance(token, int) and token >= 0 for token in tokens):
        raise ValueError(f"{ARGUMENT} must be a list of token ids")
    return tokens


class ForcedTokens(LogitsProcessor):
    """For the V1 model runner, which addresses requests by their index in the batch."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._requests: dict[int, tuple[list[int], list[int]]] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a malformed list when the request is admitted."""
        forced_tokens_of(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """False: forcing changes the greedy choice."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the batch: requests leave, enter and move (in this order, as vLLM documents)."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._requests.pop(index, None)
        for index, params, _prompt, output in batch_update.added:
            tokens = forced_tokens_of(params)
            if tokens is None:
                self._requests.pop(index, None)
            else:
                self._requests[index] = (tokens, output)
        for source, target, direction in batch_update.moved:
            self._move(source, target, swap=direction == MoveDirectionality.SWAP)

    def _move(self, source: int, target: int, *, swap: bool) -> None:
        moving, standing = self._requests.pop(source, None), self._requests.pop(target, None)
        if moving is not None:
            self._requests[target] = moving
        if swap and standing is not None:
            self._requests[source] = standing

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask `logits` (batch, vocabulary) in place to the reference token of each forced request."""
        for index, (tokens, output) in self._requests.items():
            if len(output) < len(tokens):
                _leave_only(logits[index], tokens[len(output)])
        return logits


def _leave_only(row: torch.Tensor, token: int) -> None:
    row.fill_(-math.inf)
    row[token] = 0.0
