"""What the engine counts and says of itself, under vLLM's names where vLLM has one.

What the cache holds is measured from its tensors: at start-up on a sequence of the engine's own, and again after every
request. The pool is notional, since sequences here get what they need; its size is what vLLM's CPU workers have, so
that the tokens that fit compare what methods store.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gatekeeper.domain.base import LARGEST
from gatekeeper.domain.eviction import Composed, Eviction, PerLayer, SinglePolicy, single_policies
from gatekeeper.domain.kv_budget import left_to_bound, tokens_kept
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.kv_memory import GIB
from gatekeeper.domain.measurement import EVICTED_TOKENS
from workers.engines.reference.runner import Context, Runner
from workers.engines.vllm_effective import PIECES, SELF_REPORT

LONGEST_TRIAL: Final = 1024
"""Tokens of the sequence on which the cache is measured at start-up, unless nothing of so many is evicted."""
LONGEST_COMPOSED: Final = 4 * LONGEST_TRIAL
"""The same where it has to fill what a second policy leaves."""
LONGEST_DECODE: Final = 512
"""Tokens that are decoded after it at most, where a policy bounds what is."""
BEYOND: Final = 8
"""Tokens that are decoded beyond such a bound."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A cache of `seen` tokens: how many each layer holds, the bytes of all, and what one more token adds, if known.

    `held_after_decoding`: how many each layer holds `decoded` tokens later; 0: that was not tried.
    """

    seen: int
    held_by_layer: tuple[int, ...]
    nbytes: int
    bytes_of_one_more: float | None
    stored_types: Mapping[str, int]
    sixteen_bit_layers: tuple[int, ...]
    decoded: int = 0
    held_after_decoding: tuple[int, ...] = ()


def trial_lengths(eviction: Eviction, *, longest: int, layers: int) -> tuple[int, int]:
    """Tokens of a prompt, and of what is decoded after it, of which each policy evicts something, if `longest` allows.

    Of two in turn the prompt leaves the second as little to wait for as it can, since each decoded token takes a step.
    What it waits for is the fullest of the model's `layers` that are not skipped.
    """
    match eviction:
        case PerLayer():
            return max(trial_tokens(part, longest=longest) for _, part in single_policies(eviction)), 0
        case Composed(prompt=first):
            bound = tokens_kept(eviction.decode, LARGEST)
            missing = max(bound - (first.budget_tokens or bound), 0) + BEYOND
            if missing > min(LONGEST_DECODE, longest - 1):
                return trial_tokens(first, longest=longest), 0
            prompt = trial_tokens(first, longest=longest - missing)
            if first.budget_tokens is None:
                prompt = longest_within(eviction, bound, longest=longest, layers=layers)
            decoded = max(bound - max(left_to_bound(eviction, prompt, layers=layers)), 0) + BEYOND
            if decoded > min(LONGEST_DECODE, longest - prompt):
                return trial_tokens(first, longest=longest), 0
            return prompt, decoded
        case _:
            return trial_tokens(eviction, longest=longest), 0


def trial_tokens(eviction: SinglePolicy, *, longest: int) -> int:
    """Tokens of a sequence from which something is evicted, if any of up to `longest` tokens is one."""
    trial, kept = min(longest, LONGEST_TRIAL), tokens_kept(eviction, longest)
    if kept == longest or tokens_kept(eviction, trial) < trial:
        return trial
    return min(longest, kept + LONGEST_TRIAL)


def longest_within(eviction: Composed, bound: int, *, longest: int, layers: int) -> int:
    """A long prompt whose share no layer holds more than `bound` of, and after which `longest` has room to fill it.

    The longest one, but for what rounding leaves; one token at least.
    """

    def is_too_long(length: int) -> bool:
        left = max(left_to_bound(eviction, length, layers=layers))
        return left > bound or length + bound - left + BEYOND > longest

    lengths = range(1, min(longest, LONGEST_COMPOSED) + 1)
    return max(bisect_left(lengths, True, key=is_too_long), 1)


def measure_cache(runner: Runner, *, longest: int, vocabulary: int, step: int) -> Measured:
    """Measure a cache after a prompt of at most `longest` tokens; its lengths are multiples of `step`, if they can be.

    One more token costs the difference of two lengths over their distance: what stays in full precision at either
    length is in neither. That takes two steps at the least.
    """
    trial, decoded = trial_lengths(runner.config.eviction, longest=longest, layers=runner.geometry.layers)
    long = max(trial // step * step, min(longest, step))
    short = max(long // 2 // step * step, 1)
    tokens = [number % vocabulary for number in range(long)]
    before, after = (runner.read_prompt(tokens[:length]) for length in (short, long))
    kinds = [
        "+".join(sorted({store.stored_type or "bfloat16" for store in (layer.keys, layer.values)}))
        for layer in after.layers
    ]
    added = (after.nbytes - before.nbytes) / (long - short) if short >= step and long > short else None
    measured = Measured(
        seen=long, held_by_layer=held_by_layer(after), nbytes=after.nbytes, bytes_of_one_more=added,
        stored_types=Counter(kinds),
        sixteen_bit_layers=tuple(index for index, kind in enumerate(kinds) if kind == "bfloat16"),
    )  # fmt: skip
    for number in range(decoded):
        runner.advance([after], [number % vocabulary])
    return (
        replace(measured, decoded=decoded, held_after_decoding=held_by_layer(after)) if decoded else measured
    )


def held_by_layer(context: Context) -> tuple[int, ...]:
    """Tokens in each layer of a cache, the lowest first."""
    return tuple(layer.held_tokens for layer in context.layers)


def tell(
    measured: Measured, config: KVConfig, *, max_model_len: int, compute: str, piece: int | None
) -> None:
    """Write the account of the cache into the log, in one line."""
    account = {
        "engine": "reference",
        "cache_dtype": "auto" if config.quantization.scheme == "none" else config.quantization.scheme,
        "eviction": config.eviction.model_dump(mode="json", exclude_none=True),
        "max_model_len": max_model_len, "model_dtype": compute, "max_num_batched_tokens": piece,
        "seen": measured.seen, "held_by_layer": measured.held_by_layer, "nbytes": measured.nbytes,
        "bytes_of_one_more": measured.bytes_of_one_more, "stored_types": dict(measured.stored_types),
        "sixteen_bit_layers": measured.sixteen_bit_layers,
        "decoded": measured.decoded, "held_after_decoding": measured.held_after_decoding,
        "calibration": getattr(config.quantization, "calibration", None),
    }  # fmt: skip
    print(f"{SELF_REPORT}{json.dumps(account)}", flush=True)


@dataclass(kw_only=True)
class Meter:
    """Counters, safe to use from any thread. `measured`: the cache at start-up; `block_size`: tokens of its blocks."""

    config: KVConfig
    measured: Measured
    block_size: int = 1
    counts: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def came(self) -> None:
        """A request waits."""
        self._add(waiting=1)

    def started(self) -> None:
        """A request is computed."""
        self._add(waiting=-1, running=1)

    def failed(self) -> None:
        """A request ended in an error."""
        self._add(running=-1)

    def prompt_read(self, tokens: int, pieces: int, *, forced: bool) -> None:
        """A prompt is in its cache; of forced requests the log tells in how many pieces, as vLLM's is made to."""
        self._add(prompt=tokens)
        if forced and pieces > 1:
            print(f"{PIECES}{pieces}", flush=True)

    def looked_up(self, tokens: int, found: int, *, held_bytes: int) -> None:
        """Of a prompt's `tokens`, `found` came from the prefix cache, which holds so many bytes since."""
        self._add(prefix_queries=tokens, prefix_hits=found)
        with self._lock:
            self.counts["prefix_bytes"] = held_bytes

    def finished(self, tokens: int, *, seen: int, held: float, nbytes: int) -> None:
        """A request has been answered with `tokens` tokens."""
        self._add(running=-1, generated=tokens, success=1, seen=seen, held=held, nbytes=nbytes)

    def _add(self, **counts: float) -> None:
        with self._lock:
            for name, count in counts.items():
                self.counts[name] = self.counts.get(name, 0) + count

    def text(self) -> str:
        """The metrics in Prometheus' format."""
        with self._lock:
            counts = dict(self.counts)
        samples: list[tuple[str, str, float]] = [
            ("counter", "vllm:prompt_tokens_total", counts.get("prompt", 0)),
            ("counter", "vllm:generation_tokens_total", counts.get("generated", 0)),
            ("counter", "vllm:request_success_total", counts.get("success", 0)),
            ("counter", "vllm:prefix_cache_queries_total", counts.get("prefix_queries", 0)),
            ("counter", "vllm:prefix_cache_hits_total", counts.get("prefix_hits", 0)),
            ("gauge", "gatekeeper:prefix_cache_bytes", counts.get("prefix_bytes", 0)),
            ("counter", "vllm:num_preemptions_total", 0),
            ("gauge", "vllm:num_requests_running", counts.get("running", 0)),
            ("gauge", "vllm:num_requests_waiting", counts.get("waiting", 0)),
            ("counter", "gatekeeper:kv_tokens_kept_total", counts.get("held", 0)),
            ("counter", EVICTED_TOKENS, counts.get("seen", 0) - counts.get("held", 0)),
            ("counter", "gatekeeper:kv_stored_bytes_total", counts.get("nbytes", 0)),
        ]
        lines = [
            f"# TYPE {name.removesuffix('_total')} {kind}\n{name} {value}" for kind, name, value in samples
        ]
        labels = ",".join(f'{name}="{value}"' for name, value in self._labels().items())
        return "\n".join(
            [*lines, "# TYPE vllm:cache_config_info gauge", f"vllm:cache_config_info{{{labels}}} 1", ""]
        )

    def _labels(self) -> dict[str, Any]:
        """What vLLM's gauge says of a pool, of the notional one."""
        scheme = self.config.quantization.scheme
        return {
            "cache_dtype": "auto" if scheme == "none" else scheme, "block_size": self.block_size,
            "enable_prefix_caching": bool(self.config.reuse.prefix_caching),
            "kv_cache_memory_bytes": GIB,
            "kv_cache_size_tokens": fitting_tokens(self.measured.nbytes, self.measured.seen),
        }  # fmt: skip


def fitting_tokens(nbytes: int, seen: int) -> int:
    """Tokens of sequences of `seen` tokens, `nbytes` each, that one GiB holds: whole sequences' share of it."""
    return int(GIB / nbytes * seen)
