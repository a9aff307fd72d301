"""Prompts' keys and values kept for later prompts that begin with the same tokens, in whole blocks as vLLM keeps them.

What is kept is what the scheme stored, before any policy compressed it, so a prompt that starts from it reads the rest
and is compressed as if it had been read whole. Decoded tokens are not kept: they attended to a compressed cache.

Sums over other numbers of rows round differently, and what rounds to another code in one layer grows in those above. So
every prompt is computed block by block, found or not, and results are the same to the last bit. KIVI's can't be, see
`piece_tokens`: there they are the same but for rounding.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import assert_never

from gatekeeper.domain.eviction import (
    ExpectedAttention,
    HeavyHitter,
    NoEviction,
    PrefillSelector,
    PyramidKv,
    SinglePolicy,
    SlidingWindow,
    SnapKv,
    StreamingLlm,
    TopK,
    single_policies,
)
from gatekeeper.domain.kv_config import Kivi, KVConfig, Quantization
from gatekeeper.domain.kv_memory import GIB
from gatekeeper.domain.reference_engine import BLOCK_TOKENS
from workers.engines.reference.layers import LayerBlock, SequenceLayer


def block_tokens(quantization: Quantization) -> int:
    """Tokens of a block: with KIVI a lump of keys, which are encoded together wherever a prompt begins."""
    if not isinstance(quantization, Kivi):
        return BLOCK_TOKENS
    return quantization.residual_length or quantization.group_size


def piece_tokens(quantization: Quantization) -> int | None:
    """Tokens that are computed at once, at most; None: all of a prompt.

    With KIVI a piece's last tokens would be met in 16 bits by its other tokens, and as codes in a whole prompt.
    """
    return None if isinstance(quantization, Kivi) else BLOCK_TOKENS


def fresh_tokens(config: KVConfig) -> int:
    """Tokens at a prompt's end that are always computed: what is looked at beyond keys and values.

    That is the last token, for its logits, and the queries that a policy observes. KIVI's residual is in 16 bits, for
    the tokens in it too, so what they compute is not what they would compute in a longer prompt. Raises ValueError for
    policies that observe all queries.
    """
    residual = config.quantization.residual_length if isinstance(config.quantization, Kivi) else 0
    return max(1, residual, *(_observed_queries(part) for _, part in single_policies(config.eviction)))


def _observed_queries(eviction: SinglePolicy) -> int:
    """How many of the prompt's last queries a policy looks at once the prompt is over."""
    match eviction:
        case NoEviction() | SlidingWindow() | StreamingLlm() | TopK():
            return 0
        case SnapKv(observation_window=window) | PyramidKv(observation_window=window):
            return window
        case PrefillSelector():
            return 1
        case HeavyHitter() | ExpectedAttention():
            raise ValueError(f"{eviction.policy} looks at all queries, which a reused prefix does not have")
        case _:
            assert_never(eviction)


@dataclass(frozen=True, kw_only=True)
class Block:
    """The tokens of one block in every layer."""

    layers: Sequence[LayerBlock]

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored."""
        return sum(store.nbytes for layer in self.layers for store in layer)


class PrefixCache:
    """At most `capacity_bytes` of blocks. Those used longest ago leave first, of one prompt the last ones.

    A block is found by its own tokens and all before it, and only with the salt with which it was kept.
    """

    def __init__(self, config: KVConfig, *, capacity_bytes: int = GIB) -> None:
        self.block_size, self.nbytes = block_tokens(config.quantization), 0
        self.piece = piece_tokens(config.quantization)
        self._fresh_tokens, self._capacity_bytes = fresh_tokens(config), capacity_bytes
        self._blocks: OrderedDict[bytes, Block] = OrderedDict()

    def restore(self, prompt: Sequence[int], salt: str, layers: Sequence[SequenceLayer]) -> int:
        """Put the longest known run of blocks into empty layers; the tokens that then need not be computed."""
        most = max(len(prompt) - self._fresh_tokens, 0) // self.block_size * self.block_size
        names = list(takewhile(self._blocks.__contains__, self._names(prompt[:most], salt)))
        if names:
            blocks = [self._blocks[name] for name in names]
            for layer, same in zip(
                layers, zip(*(block.layers for block in blocks), strict=True), strict=True
            ):
                layer.restore(same)
            self._use(names)
        return len(names) * self.block_size

    def keep(self, prompt: Sequence[int], salt: str, recorded: Sequence[LayerBlock], *, start: int) -> None:
        """Keep a prompt's whole blocks; `recorded`: by layer, what was stored of it from token `start` on."""
        settled = start + min(store.tokens for layer in recorded for store in layer)
        names = list(self._names(prompt[:settled], salt))
        for number in range(start // self.block_size, len(names)):
            if names[number] not in self._blocks:
                first = number * self.block_size - start
                last = first + self.block_size
                block = Block(layers=[(k.cut(first, last), v.cut(first, last)) for k, v in recorded])
                self._blocks[names[number]] = block
                self.nbytes += block.nbytes
        self._use(names)
        while self.nbytes > self._capacity_bytes:
            _, oldest = self._blocks.popitem(last=False)
            self.nbytes -= oldest.nbytes

    def _names(self, prompt: Sequence[int], salt: str) -> Iterator[bytes]:
        """A hash of each whole block, its predecessors and the salt."""
        name = hashlib.sha256(salt.encode()).digest()
        for start in range(0, len(prompt) - self.block_size + 1, self.block_size):
            tokens = array("q", prompt[start : start + self.block_size]).tobytes()
            name = hashlib.sha256(name + tokens).digest()
            yield name

    def _use(self, names: Sequence[bytes]) -> None:
        """A block is useless without those before it, so it counts as used before them."""
        for name in reversed(names):
            self._blocks.move_to_end(name)
