"""A prompt that starts from an earlier one's blocks gives what it gives without them, for every scheme and policy."""

import copy
import functools
from typing import Any

import pytest
import torch

from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.reference_engine import (
    ALIKE_IN_ALL_HEADS,
    BLOCK_TOKENS,
    FREES_NOTHING,
    POLICIES,
    REUSABLE,
)
from tests.unit.reference.nuq_tiny import layers as nuq
from tests.unit.reference.nuq_tiny import scheme as kvquant
from tests.unit.reference.tiny import HEAD_DIM, KV_HEADS, LAYERS, model, tokens
from workers.engines.base import parse_metrics
from workers.engines.reference.meter import Measured, Meter
from workers.engines.reference.prefix_cache import PrefixCache, fresh_tokens
from workers.engines.reference.runner import Context, Runner, Sampling
from workers.engines.reference.scheduler import Job, Scheduler

TEXT, OTHER = tokens(200), tokens(200, seed=5)
SHARED = 70
"""Tokens that the later prompt has in common with the earlier one: a whole block and a part of one."""
PROMPTS = TEXT[:120], TEXT[:SHARED] + OTHER[:35]
KIVI: dict[str, Any] = {"scheme": "kivi", "bits": 2, "group_size": 8, "residual_length": 16}
SCHEMES: list[dict[str, Any]] = [
    {"scheme": "none"}, {"scheme": "fp8_e4m3"}, {"scheme": "fp8_e5m2"}, {"scheme": "int8"}, {"scheme": "int4"},
    {"scheme": "int4", "group_size": 8}, {"scheme": "nf4", "block_size": HEAD_DIM},
    {"scheme": "int4", "skip_layers": [0]}, KIVI, KIVI | {"bits": 4, "residual_length": 0},
    KIVI | {"residual_length": 24}, kvquant(3).model_dump(exclude_none=True),
]  # fmt: skip
EVICTIONS: dict[str, dict[str, Any]] = {
    "none": {"policy": "none"}, "topk": {"policy": "topk", "k": 9},
    "sliding_window": {"policy": "sliding_window", "window": 21},
    "streaming_llm": {"policy": "streaming_llm", "sinks": 3, "window": 18},
    "snapkv": {"policy": "snapkv", "evicted_fraction": 0.5, "observation_window": 20},
    "pyramidkv": {"policy": "pyramidkv", "evicted_fraction": 0.5, "observation_window": 20},
    **{name: {"policy": name, "evicted_fraction": 0.5} for name in ("tova", "knorm", "keydiff")},
}  # fmt: skip
TOGETHER: dict[str, dict[str, Any]] = {
    "composed": {
        "policy": "composed",
        "prompt": EVICTIONS["snapkv"],
        "decode": {"policy": "streaming_llm", "sinks": 3, "window": 48},
    },
    "per_layer": {
        "policy": "per_layer",
        "groups": [{"layers": [0], "eviction": EVICTIONS["sliding_window"]}],
        "other": EVICTIONS["keydiff"],
    },
}
MEASURED = Measured(
    seen=64, held_by_layer=(32, 32), nbytes=64, bytes_of_one_more=1.0, stored_types={}, sixteen_bit_layers=()
)  # fmt: skip
COMBINED = [
    pytest.param(scheme, EVICTIONS[policy], id=f"{' '.join(map(str, scheme.values()))} {policy}")
    for scheme in SCHEMES
    for policy in REUSABLE
    if policy in {"kivi": FREES_NOTHING, "kvquant": ALIKE_IN_ALL_HEADS}.get(scheme["scheme"], REUSABLE)
]
COMBINED += [
    pytest.param({"scheme": scheme}, eviction, id=f"{scheme} {name}")
    for scheme in ("none", "int4")
    for name, eviction in TOGETHER.items()
]


@functools.cache
def exact_model() -> Any:
    """The small model in 64 bits: sums in another order then never round to another code or another ranking."""
    return copy.deepcopy(model()).double()


def exact(scheme: dict[str, Any], eviction: dict[str, Any], *, piece: int | None = None) -> Runner:
    return runner_of(exact_model(), scheme, eviction, piece=piece)


def runner_of(
    model: Any, scheme: dict[str, Any], eviction: dict[str, Any], *, piece: int | None = None
) -> Runner:
    config = KVConfig.model_validate(
        {"quantization": scheme, "eviction": eviction, "reuse": {"prefix_caching": True}}
    )
    calibrated = nuq(3) if scheme["scheme"] == "kvquant" else ()
    return Runner(model=model, config=config, piece=piece, rows=2, nuq=calibrated)


def reusing(run: Runner, *prompts: list[int], salt: str = "") -> list[Context]:
    prefixes = PrefixCache(run.config)
    return [run.read_prompt(prompt, prefixes=prefixes, salt=salt) for prompt in prompts]


def assert_same(run: Runner, found: Context, expected: Context, *, following: list[int]) -> None:
    """Stored bytes, places, and all that is decoded from there on."""
    for token in [None, *following]:
        if token is not None:
            for context in (found, expected):
                run.advance([context], [token])
        assert torch.allclose(found.next_logprobs, expected.next_logprobs, atol=1e-5)
    assert (found.seen_tokens, found.nbytes) == (expected.seen_tokens, expected.nbytes)
    for ours, theirs in zip(found.layers, expected.layers, strict=True):
        assert torch.equal(ours.positions, theirs.positions)
        assert torch.equal(ours.keys.read(), theirs.keys.read())
        assert torch.equal(ours.values.read(), theirs.values.read())


@pytest.mark.parametrize(("scheme", "eviction"), COMBINED)
def test_what_is_left_of_a_prompt_is_the_same_with_and_without_reuse(
    scheme: dict[str, Any], eviction: dict[str, Any]
) -> None:
    run = exact(scheme, eviction)
    _, context = reusing(run, *PROMPTS)
    assert context.reused_tokens in (48, 64)
    assert_same(run, context, run.read_prompt(PROMPTS[1]), following=OTHER[35:60])


@pytest.mark.parametrize("eviction", EVICTIONS.values(), ids=EVICTIONS)
def test_prompts_in_pieces_reuse_and_are_reused(eviction: dict[str, Any]) -> None:
    run = exact({"scheme": "int8"}, eviction, piece=23)
    _, context = reusing(run, *PROMPTS)
    assert context.reused_tokens == 64
    assert context.pieces == 2, "23 and 18 tokens"
    assert_same(run, context, run.read_prompt(PROMPTS[1]), following=OTHER[35:40])


@pytest.mark.parametrize(("piece", "pieces"), [(None, 3), (32, 5), (BLOCK_TOKENS, 3), (512, 3)], ids=str)
def test_no_piece_is_larger_than_a_block_so_that_no_larger_one_may_be_asked_for(
    piece: int | None, pieces: int
) -> None:
    run = exact({"scheme": "none"}, {"policy": "none"}, piece=piece)
    (context,) = reusing(run, tokens(2 * BLOCK_TOKENS + 20))
    assert context.pieces == pieces


@pytest.mark.parametrize(("scheme", "eviction"), COMBINED)
def test_in_thirty_two_bits_nothing_depends_on_what_was_found(
    scheme: dict[str, Any], eviction: dict[str, Any]
) -> None:
    run = runner_of(model(), scheme, eviction)
    (expected,) = reusing(run, PROMPTS[1])
    _, context = reusing(run, *PROMPTS)
    assert (expected.reused_tokens, context.reused_tokens) in ((0, 48), (0, 64))
    if scheme["scheme"] == "kivi":  # read whole, so that the rest alone rounds otherwise
        assert torch.allclose(context.next_logprobs, expected.next_logprobs, atol=1e-2)
        return
    assert torch.equal(context.next_logprobs, expected.next_logprobs)
    for ours, theirs in zip(context.layers, expected.layers, strict=True):
        assert torch.equal(ours.positions, theirs.positions)
        assert torch.equal(ours.keys.read(), theirs.keys.read())
        assert torch.equal(ours.values.read(), theirs.values.read())


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 128, 129])
def test_whole_blocks_are_reused_and_the_last_token_is_always_computed(length: int) -> None:
    run = exact({"scheme": "none"}, {"policy": "none"})
    _, context = reusing(run, TEXT, TEXT[:length])
    assert context.reused_tokens == (length - 1) // 64 * 64
    assert_same(run, context, run.read_prompt(TEXT[:length]), following=OTHER[:2])


def test_the_queries_that_a_policy_observes_are_computed() -> None:
    run = exact({"scheme": "none"}, EVICTIONS["snapkv"])
    lengths = (20, 83, 84, 147, 148)
    prefixes = PrefixCache(run.config)
    run.read_prompt(TEXT, prefixes=prefixes)
    reused = [run.read_prompt(TEXT[:length], prefixes=prefixes).reused_tokens for length in lengths]
    assert reused == [0, 0, 64, 64, 128]


def test_kivi_reuses_whole_lumps_that_no_residual_touched_in_either_prompt() -> None:
    run = exact(KIVI | {"residual_length": 24}, {"policy": "none"})
    prefixes = PrefixCache(run.config)
    assert prefixes.block_size == 24
    first = run.read_prompt(TEXT[:47], prefixes=prefixes)
    assert (first.reused_tokens, prefixes.nbytes) == (0, 0)
    run.read_prompt(TEXT[:48], prefixes=prefixes)
    assert prefixes.nbytes > 0
    shorter, longer = (run.read_prompt(TEXT[:length], prefixes=prefixes) for length in (47, 120))
    assert (shorter.reused_tokens, longer.reused_tokens) == (0, 24)
    assert_same(run, longer, run.read_prompt(TEXT[:120]), following=OTHER[:30])


def test_blocks_are_kept_as_the_scheme_stores_them_and_uncompressed() -> None:
    sizes = {}
    for scheme in ("none", "int8"):
        run = exact({"scheme": scheme}, EVICTIONS["sliding_window"])
        prefixes = PrefixCache(run.config)
        context = run.read_prompt(TEXT[:64], prefixes=prefixes)
        assert context.held_tokens == 21
        assert prefixes.nbytes == context.nbytes / 21 * 64
        sizes[scheme] = prefixes.nbytes
    assert sizes["int8"] < 0.6 * sizes["none"]


def test_another_salt_shares_nothing() -> None:
    run = exact({"scheme": "none"}, {"policy": "none"})
    prefixes = PrefixCache(run.config)
    reused = [
        run.read_prompt(TEXT, prefixes=prefixes, salt=salt).reused_tokens for salt in ("a", "b", "", "a")
    ]
    assert reused == [0, 0, 0, 192]


def test_a_block_counts_only_behind_all_that_came_before_it() -> None:
    run = exact({"scheme": "none"}, {"policy": "none"})
    moved = [*OTHER[:16], *TEXT[16:]]
    _, context = reusing(run, TEXT, moved)
    assert context.reused_tokens == 0


def test_memory_is_bounded_and_what_was_used_longest_ago_leaves_its_last_blocks_first() -> None:
    run = exact({"scheme": "none"}, {"policy": "none"})
    block = 64 * LAYERS * KV_HEADS * HEAD_DIM * 2 * 2
    prefixes = PrefixCache(run.config, capacity_bytes=5 * block)

    def reused(prompt: list[int]) -> int | None:
        found: int | None = run.read_prompt(prompt, prefixes=prefixes).reused_tokens
        assert prefixes.nbytes <= 5 * block
        return found

    old, new = TEXT, OTHER
    assert [reused(old), reused(new)] == [0, 0]
    assert reused(new) == 192
    assert reused(old) == 128, "its third block had to go"
    assert reused(tokens(400, seed=6)) == 0
    assert prefixes.nbytes == 5 * block
    assert reused(tokens(400, seed=6)) == 320
    assert reused(new) == 0


def test_a_prompt_that_is_scored_is_computed_whole_and_keeps_its_blocks() -> None:
    run = exact({"scheme": "none"}, {"policy": "none"})
    prefixes = PrefixCache(run.config)
    for _ in range(2):
        context = run.read_prompt(TEXT, top=1, prefixes=prefixes)
        assert (context.reused_tokens, len(context.prompt_scores)) == (None, len(TEXT) - 1)
    assert run.read_prompt(TEXT, prefixes=prefixes).reused_tokens == 192


def test_decoded_tokens_are_not_reused() -> None:
    run = exact({"scheme": "none"}, {"policy": "none"})
    prefixes = PrefixCache(run.config)
    context = run.read_prompt(TEXT[:70], prefixes=prefixes)
    for token in TEXT[70:140]:
        run.advance([context], [token])
    assert run.read_prompt(TEXT[:140], prefixes=prefixes).reused_tokens == 64


def test_counters_tell_of_what_was_looked_up_found_and_held() -> None:
    run = exact({"scheme": "none"}, EVICTIONS["snapkv"])
    prefixes = PrefixCache(run.config)
    meter = Meter(config=run.config, measured=MEASURED, block_size=prefixes.block_size)
    scheduler = Scheduler(run, meter, prefixes)
    for salt, prompt_top in (("a", None), ("a", None), ("b", None), ("a", 1)):
        sampling = Sampling(max_tokens=1)
        job = Job(prompt=TEXT[:100], sampling=sampling, salt=salt, prompt_top=prompt_top)
        scheduler.submit(job)
        job.prompt_scores()
        assert len([*job.tokens()]) == 1
    shown = parse_metrics(meter.text())
    assert shown["vllm:prefix_cache_queries_total"] == 300, "a prompt that is scored is not looked up"
    assert shown["vllm:prefix_cache_hits_total"] == 64
    assert shown["gatekeeper:prefix_cache_bytes"] == prefixes.nbytes > 0
    assert 'block_size="64",enable_prefix_caching="True"' in meter.text()


@pytest.mark.parametrize("policy", sorted({*POLICIES} - {*REUSABLE}))
def test_a_policy_that_looks_at_all_queries_reuses_nothing(policy: str) -> None:
    config = KVConfig.model_validate({"eviction": {"policy": policy, "evicted_fraction": 0.5}})
    with pytest.raises(ValueError, match="all queries"):
        fresh_tokens(config)
