"""What an arm yields: measurements keyed by item, and traces of scored tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Role = Literal["baseline", "control", "candidate"]
"""`control` is a second, independent launch of the baseline: it measures the noise of this setup."""

Mode = Literal["cold", "warm", "first_batch", "boundary", "chunked", "greedy", "prefill", "saturated"]
"""The state in which the engine met an item. Each is proven by an engine counter, see `Exercise`.

`cold`: nothing reusable in the cache. `warm`: the item's prefix already there. `first_batch`: the first requests after
the start. `boundary`: prompts one token short of whole cache blocks, whole, and one over. `chunked`: the prompt in
three or more pieces. `greedy`: along the baseline's own greedy continuation instead of a given text. `prefill`: the
same tokens scored as a part of the prompt. `saturated`: a pool so small that requests are preempted.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One metric of one item. A value that is not finite is stored as None with the reason."""

    suite: str
    mode: Mode
    item_id: str
    cluster: str
    """Items of one cluster (a document, a task's item) are not independent of each other."""
    metric: str
    value: float | None
    reason: str | None = None
    batch: int = 0
    """Items are measured in batches, the same ones in the same order in every arm; after each the run may stop."""

    @classmethod
    def of(
        cls, *, suite: str, mode: Mode, item_id: str, cluster: str, metric: str, value: float, batch: int = 0
    ) -> Measurement:
        """A measurement whose value may turn out NaN or infinite."""
        finite = math.isfinite(value)
        return cls(
            suite=suite,
            mode=mode,
            item_id=item_id,
            cluster=cluster,
            metric=metric,
            value=float(value) if finite else None,
            reason=None if finite else f"the engine returned {value}",
            batch=batch,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTrace:
    """The scored tokens of one item, as the engine's raw distribution saw them.

    `token_logprobs[i]` is the log-probability (nats) of reference token i; `top_ids[i]` and `top_logprobs[i]` are the
    most probable tokens there, best first. All three have the length of `token_ids`.
    """

    suite: str
    mode: Mode
    item_id: str
    cluster: str
    token_ids: Sequence[int]
    token_logprobs: Sequence[float | None]
    top_ids: Sequence[Sequence[int]]
    top_logprobs: Sequence[Sequence[float | None]]
    batch: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Exercise:
    """Whether a mode that a probe claims really happened: an engine counter and how far it moved.

    `moved` None: the engine does not have the counter, or its counters stood still while it worked. `expected` "any":
    the counter is only shown.
    """

    suite: str
    mode: Mode
    counter: str
    moved: float | None
    expected: Literal["moved", "still", "any"]

    @property
    def happened(self) -> bool:
        """True if the counter did what the mode says."""
        if self.expected == "any":
            return True
        return self.moved is not None and (self.moved > 0) == (self.expected == "moved")

    @property
    def objection(self) -> str:
        """What speaks against the mode, as a phrase; for one that did not happen."""
        if self.moved is None:
            return "is not counted by the engine"
        return "did not move" if self.expected == "moved" else f"moved by {self.moved:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """A probe that was ended on purpose in one mode, after its first `batches` batches: more would decide nothing."""

    suite: str
    mode: Mode
    batches: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectiveConfig:
    """What the engine says it runs with, read back from the engine itself. None: it did not say.

    `kv_cache_tokens`: how many tokens of full-length sequences fit, the last block of each partly empty;
    `kv_cache_slots`: token places in all blocks; `kv_cache_bytes`: the memory of the whole pool.
    """

    cache_dtype: str | None = None
    kv_cache_tokens: int | None = None
    kv_cache_slots: int | None = None
    kv_cache_bytes: int | None = None
    block_size: int | None = None
    prefix_caching: bool | None = None
    sliding_window: int | None = None
    model_dtype: str | None = None
    max_model_len: int | None = None

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Bytes per token that the pool really spends, or None where the engine does not report both figures."""
        if not self.kv_cache_slots or self.kv_cache_bytes is None:
            return None
        return self.kv_cache_bytes / self.kv_cache_slots
