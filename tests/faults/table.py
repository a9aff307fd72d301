"""Every fault by its name, at sizes that fit the matrix: blocks of 32 tokens, prompts of 96, 32 decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.faults import kinds
from tests.faults.kinds import Fault
from tests.faults.served import CACHE_CONFIG, PREEMPTIONS, PREFIX_HITS

BLOCK_TOKENS: Final = 32
CONTEXT_TOKENS: Final = 104
"""Where context damage begins: far beyond short prompts, within the fidelity documents."""
DECODED_TOKENS: Final = 16
DECLARED_TOKENS: Final = 250
CHUNK_TOKENS: Final = 64
"""The budget of an engine step, in tokens."""


def _twice(number: str) -> str:
    return str(2 * int(number))


claims_fp8 = kinds.relabelled(
    CACHE_CONFIG, cache_dtype="fp8_e4m3", num_gpu_blocks=_twice, kv_cache_size_tokens=_twice
)
"""What a 16-bit pool of the same bytes would say of itself if it held FP8."""

FAULTS: Final[Mapping[str, Fault]] = {
    "none": Fault(about="nothing is wrong"),
    "past_context": Fault(
        about=f"damage from context token {CONTEXT_TOKENS} on",
        choice=kinds.damaged(kinds.past_context(CONTEXT_TOKENS)),
    ),
    "past_declared_context": Fault(
        about=f"damage from context token {DECLARED_TOKENS} on, which a deployment reaches and the suite does not",
        choice=kinds.damaged(kinds.past_context(DECLARED_TOKENS)),
    ),
    "after_decoded": Fault(
        about=f"damage from decoded token {DECODED_TOKENS} on",
        choice=kinds.damaged(kinds.after_decoded(DECODED_TOKENS)),
    ),
    "prefix_hit": Fault(
        about="damage only where the prefix cache is hit", choice=kinds.damaged(kinds.on_prefix_hit)
    ),
    "preempting": Fault(
        about="damage only in requests during which the scheduler preempts",
        choice=kinds.damaged(kinds.when_preempted),
        needs_preemptions=True,
    ),
    "concurrent": Fault(
        about="damage only while 4 other requests are under way",
        choice=kinds.damaged(kinds.when_concurrent(4)),
        needs_concurrency=True,
    ),
    "one_at_a_time": Fault(
        about="the engine gets one request at a time, however many are sent", one_at_a_time=True
    ),
    "first_batch": Fault(
        about="damage only in the first 16 requests after boot",
        choice=kinds.damaged(kinds.first_requests(16)),
    ),
    "block_boundary": Fault(
        about="damage only after prompts one token longer than whole blocks",
        choice=kinds.damaged(
            kinds.prompt_of(lambda tokens: tokens % BLOCK_TOKENS == 1), strength=2 * kinds.STRENGTH
        ),  # one document of three meets it
    ),
    "chunked": Fault(
        about="damage only after prompts that take three steps or more",
        choice=kinds.damaged(kinds.prompt_of(lambda tokens: tokens > 2 * CHUNK_TOKENS)),
    ),
    "doubled_tokens": Fault(
        about="every second token of free text is doubled", choice=kinds.every_second_doubled
    ),
    "nan_logprobs": Fault(
        about=f"NaN log-probabilities past {CONTEXT_TOKENS} tokens", instead=kinds.nan_past(CONTEXT_TOKENS)
    ),
    "nan_everywhere": Fault(about="NaN log-probabilities in every answer", instead=kinds.nan_past(0)),
    "setting_ignored": Fault(
        about="FP8 was asked for, the cache stays 16-bit",
        metrics=kinds.relabelled(CACHE_CONFIG, cache_dtype="auto"),
    ),
    "setting_ignored_silently": Fault(
        about="FP8 was asked for, the metrics claim it, the cache stays 16-bit", metrics=claims_fp8
    ),
    "metrics_missing": Fault(
        about="the metrics do not hold the cache configuration", metrics=kinds.without(CACHE_CONFIG)
    ),
    "account_missing": Fault(
        about="neither the metrics nor the log say how the cache is configured",
        metrics=kinds.without(CACHE_CONFIG),
        log=kinds.unsaid("kv_cache_dtype", kinds.SELF_REPORT),
    ),
    "hits_missing": Fault(about="the engine does not count prefix hits", metrics=kinds.without(PREFIX_HITS)),
    "unit_scales": Fault(
        about="the checkpoint's scales were asked for, the cache runs at 1.0",
        metrics=claims_fp8,
        log=kinds.accounting(
            kv_cache_dtype="fp8_e4m3", stored_as="float8_e4m3fn", scales=[1.0, 1.0], unit_scale_layers=True
        ),
    ),
    "frozen_counters": Fault(
        about="the counters of prefix hits and preemptions stand still",
        metrics=kinds.frozen(PREFIX_HITS, PREEMPTIONS),
    ),
    "failing_requests": Fault(about="5 % of the requests fail", instead=kinds.failing_every(20)),
    "stalled": Fault(about="no answer after 20 requests", instead=kinds.silent_after(20)),
    "empty_answers": Fault(about="every answer comes at once and is empty", instead=kinds.no_tokens),
    "empty_free_text": Fault(
        about="free text ends before its first token, scoring works", instead=kinds.no_free_tokens
    ),
    "blank_free_text": Fault(
        about="free text comes back blank, though its tokens were generated", choice=kinds.blank
    ),
}
