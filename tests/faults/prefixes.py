"""What an engine's prefix cache can hold, as far as the requests before a request show it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults import served


@dataclass(kw_only=True)
class PrefixCache:
    """Prompts that were answered, by their salt. `block_tokens` None: prefixes are not reused."""

    block_tokens: int | None
    _answered: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, metrics_text: str) -> PrefixCache:
        """As the engine's metrics say it is configured."""
        labels = served.labels(metrics_text, served.CACHE_CONFIG)
        reuses = labels.get("enable_prefix_caching") == "True"
        return cls(block_tokens=int(labels["block_size"]) if reuses else None)

    def reused_tokens(self, body: Mapping[str, Any], prompts: Sequence[tuple[int, ...]]) -> int:
        """Tokens, in whole blocks, of the longest hit that any of the prompts can have.

        The last prompt token is always computed, and vLLM reads no prefix for a request that scores its prompt.
        """
        echoed = body.get("echo") and body.get("logprobs") is not None
        if self.block_tokens is None or echoed or body.get("prompt_logprobs") is not None:
            return 0
        known = self._answered.get(body.get("cache_salt") or "", [])
        shared = (min(_shared(prompt, old), len(prompt) - 1) for prompt in prompts for old in known)
        return max((tokens // self.block_tokens * self.block_tokens for tokens in shared), default=0)

    def add(self, body: Mapping[str, Any], prompts: Sequence[tuple[int, ...]]) -> None:
        """The prompts were computed."""
        self._answered.setdefault(body.get("cache_salt") or "", []).extend(prompts)


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return sum(1 for _ in pairs)
