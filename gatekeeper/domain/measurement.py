"""What an arm yields: measurements keyed by item, and traces of scored tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

EVICTED_TOKENS: Final = "gatekeeper:kv_tokens_evicted_total"
"""The reference engine's counter of tokens that sequences no longer held when they ended."""

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
    context_tokens: int | None = None
    """The length of the whole sequence that the item was measured in; None: whoever measured it does not know."""

    @classmethod
    def of(
        cls,
        *,
        suite: str,
        mode: Mode,
        item_id: str,
        cluster: str,
        metric: str,
        value: float,
        batch: int = 0,
        context_tokens: int | None = None,
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
            context_tokens=context_tokens,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTrace:
    """The scored tokens of one item, as the engine's raw distribution saw them.

    `token_logprobs[i]` is the log-probability (nats) of reference token i; `top_ids[i]` and `top_logprobs[i]` are the
    most probable tokens there, best first. All three have the length of `token_ids`. `context_tokens`: how many tokens
    came before the first of them; None: a trace from before this was stored.
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
    context_tokens: int | None = None


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
            return "is not counted by the engine, or its counters stood still while it worked,"
        return "did not move" if self.expected == "moved" else f"moved by {self.moved:g}"


Evidence = Literal["measured", "reported", "echoed"]
"""How it is known what a setting came to.

`measured`: from what the engine allocated, holds or did. `reported`: from the configuration that the engine resolved,
which shows what it overrode but not that the setting has an effect. `echoed`: the engine repeated its command line.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """A probe that was ended on purpose in one mode, after its first `batches` batches: more would decide nothing."""

    suite: str
    mode: Mode
    batches: int
    reason: str


OF_DECODING: Final = ("decoded_tokens", "kept_after_decoding")


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectiveConfig:
    """What an engine runs with, read back from the engine itself. None, or a key that is absent: it did not say.

    `kv_cache_tokens`: how many tokens of full-length sequences fit, the last block of each partly empty;
    `kv_cache_slots`: token places in all blocks; `kv_cache_bytes`: the memory set aside for the pool;
    `kv_tensor_bytes`: the memory of the cache tensors that were allocated.
    """

    cache_dtype: str | None = None
    kv_cache_tokens: int | None = None
    kv_cache_slots: int | None = None
    kv_cache_bytes: int | None = None
    kv_tensor_bytes: int | None = None
    stored_types: Mapping[str, int] = field(default_factory=dict)
    """Element type of the cache tensors, such as `uint8` -> number of layers."""
    sixteen_bit_layers: Sequence[int] | None = None
    """Layers whose cache tensors have 16-bit elements, in ascending order."""
    windows: Mapping[str, int] = field(default_factory=dict)
    """Attention window in tokens, or `none` -> number of layers."""
    eviction: Mapping[str, object] | None = None
    """The eviction policy with its parameters, as a configuration states it."""
    seen_tokens: int | None = None
    kept_tokens: int | None = None
    """Of a sequence of the engine's own of `seen_tokens` tokens, those in the cache once it was computed."""
    kept_by_layer: Mapping[str, int] = field(default_factory=dict)
    """The same layer by layer, the lowest is `0`; `kept_tokens` is their mean."""
    decoded_tokens: int | None = None
    kept_after_decoding: Mapping[str, int] | None = None
    """What each layer kept once so many tokens had been decoded after that sequence."""
    smallest_scale: float | None = None
    largest_scale: float | None = None
    """Of keys and values, over all layers with a quantized cache."""
    unit_scale_layers: int | None = None
    """Layers with a quantized cache whose scales are all 1.0."""
    scaled_layers: int | None = None
    """Layers with a quantized cache and any other scale."""
    scale_warning: str | None = None
    """The engine's warning that some layer's scales are 1.0."""
    calibration: str | None = None
    """The id of the calibration by which the cache is quantized."""
    block_size: int | None = None
    prefix_caching: bool | None = None
    offload_gib: float | None = None
    sliding_window: int | None = None
    chunked_prefill: bool | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    model_dtype: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Passed-through engine argument, named with underscores -> its value in effect."""
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    """Name of a field above, or of an argument -> how its value is known."""

    @property
    def document(self) -> dict[str, Any]:
        """All fields as JSON has them; of decoding only where it was tried, as reports had it before it could be."""
        tried = self.decoded_tokens is not None
        return {name: value for name, value in asdict(self).items() if tried or name not in OF_DECODING}

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Bytes that one cached token takes, of the tensors if they are known, or None without both figures."""
        size = self.kv_cache_bytes if self.kv_tensor_bytes is None else self.kv_tensor_bytes
        return None if size is None or not self.kv_cache_slots else size / self.kv_cache_slots
