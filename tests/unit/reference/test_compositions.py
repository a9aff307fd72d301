"""Policies in turn and by layer: which tokens stay, against lists kept by hand, and what decoding sees."""

import json
from typing import Any

import pytest
import torch

from gatekeeper.domain.eviction import Composed
from gatekeeper.domain.kv_account import MemoryQuestion, sequence_bytes
from gatekeeper.domain.kv_budget import kept_by_layer, left_to_bound
from gatekeeper.domain.kv_config import KVConfig
from tests.unit.reference.nuq_tiny import nuq_runner
from tests.unit.reference.tiny import HEAD_DIM, KV_HEADS, SHAPE, decoded, masked, model, runner, tokens
from workers.engines.reference.engine import Reference
from workers.engines.reference.meter import BEYOND, held_by_layer, measure_cache, tell, trial_lengths

TEXT = tokens(60)
PROMPT = 40
CAUSAL = torch.ones(60, 60, dtype=torch.bool).tril()
SELECTORS = ("h2o", "snapkv", "pyramidkv", "tova", "expected_attention", "knorm", "keydiff")
BOUNDED = {"policy": "streaming_llm", "sinks": 3, "window": 15}


def composed(prompt: str = "h2o", decode: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    first: dict[str, Any] = {"policy": prompt, "budget_tokens": 14}
    if prompt in ("snapkv", "pyramidkv"):
        first["observation_window"] = 4
    return {"policy": "composed", "prompt": first, "decode": decode or BOUNDED, **more}


def bounded(held: list[int], *, sinks: int, window: int) -> list[int]:
    """The first and the last of what is held."""
    return held if len(held) <= sinks + window else [*held[:sinks], *held[len(held) - window :]]


def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches in 32 bits, so that only what is visible makes a difference."""
    from workers.engines.reference import store

    monkeypatch.setattr(store.SIXTEEN_BIT.__class__, "encode", lambda _self, x: (x.clone(),))


def one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of one layer, whose keys and values depend on no mask."""
    for each in (model(), model("eager")):
        monkeypatch.setattr(each.config, "num_hidden_layers", 1)


@pytest.mark.parametrize(
    "decode", [BOUNDED, {"policy": "sliding_window", "window": 16}], ids=["sinks", "none"]
)
@pytest.mark.parametrize("prompt", SELECTORS)
def test_a_window_bounds_what_a_compressed_prompt_left_and_every_token_sees_just_that(
    prompt: str, decode: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_float32(monkeypatch)
    one_layer(monkeypatch)
    sinks, window = decode.get("sinks", 0), decode["window"]
    alone = runner({"eviction": composed(prompt)["prompt"]}).read_prompt(TEXT[:PROMPT])
    run = runner({"eviction": composed(prompt, decode)})
    context = run.read_prompt(TEXT[:PROMPT])
    held = alone.layers[0].positions.tolist()
    assert context.layers[0].positions.tolist() == held
    visible = CAUSAL.expand(KV_HEADS, -1, -1).clone()
    rows = []
    for number in range(PROMPT, 60):
        run.advance([context], [TEXT[number]])
        held = [bounded([*row, number], sinks=sinks, window=window) for row in held]
        assert context.layers[0].positions.tolist() == held
        rows.append(context.next_logprobs)
        visible[:, number] = False
        for head, row in enumerate(held):
            visible[head, number, row] = True
    assert context.held_tokens == sinks + window
    assert torch.allclose(torch.stack(rows), attended(visible)[PROMPT:], atol=1e-4)


def attended(visible: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of transformers' own attention under a mask by KV head, [KV heads, tokens, tokens]."""
    mask = visible.repeat_interleave(2, dim=0)[None]
    bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    with torch.inference_mode():
        logits = model("eager")(input_ids=torch.tensor([TEXT]), attention_mask=bias).logits[0]
    logprobs: torch.Tensor = logits.log_softmax(-1)
    return logprobs


def test_a_bound_below_the_budget_cuts_what_was_chosen_when_the_prompt_is_over() -> None:
    decode = {"policy": "streaming_llm", "sinks": 2, "window": 5}
    alone = runner({"eviction": composed()["prompt"]}).read_prompt(TEXT[:PROMPT])
    context = runner({"eviction": composed(decode=decode)}).read_prompt(TEXT[:PROMPT])
    for one, other in zip(alone.layers, context.layers, strict=True):
        expected = [bounded(row, sinks=2, window=5) for row in one.positions.tolist()]
        assert other.positions.tolist() == expected


def test_sinks_as_many_as_the_budget_keep_the_compressed_prompt_and_a_window_of_the_answer() -> None:
    run = runner({"eviction": composed("snapkv", {"policy": "streaming_llm", "sinks": 14, "window": 4})})
    context = run.read_prompt(TEXT[:PROMPT])
    chosen = context.layers[1].positions.clone()
    for token in TEXT[PROMPT:]:
        run.advance([context], [token])
    assert torch.equal(context.layers[1].positions[:, :14], chosen)
    assert context.layers[1].positions[:, 14:].tolist() == [[56, 57, 58, 59]] * KV_HEADS


def test_a_prompt_within_the_budget_is_full_attention_until_the_window_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_float32(monkeypatch)
    decode = {"policy": "streaming_llm", "sinks": 4, "window": 200}
    found = decoded(runner({"eviction": composed(decode=decode)}), TEXT, prompt=10)
    assert torch.allclose(found, masked(TEXT, CAUSAL)[9:], atol=1e-4)


@pytest.mark.parametrize("prompt", SELECTORS)
def test_pieces_of_a_prompt_come_to_the_same(prompt: str) -> None:
    config = {"eviction": composed(prompt)}
    whole, pieces = runner(config).read_prompt(TEXT), runner(config, piece=7).read_prompt(TEXT)
    for one, other in zip(whole.layers, pieces.layers, strict=True):
        assert torch.equal(one.positions, other.positions)


def test_heavy_hitters_need_no_weights_once_the_prompt_is_over() -> None:
    context = runner({"eviction": composed("h2o")}).read_prompt(TEXT)
    assert not any(layer.policy.needs_weights for layer in context.layers)
    assert runner({"eviction": composed("h2o")}).new_layers()[0].policy.needs_weights


def test_a_skipped_layer_keeps_all_in_prompt_and_decode() -> None:
    run = runner({"eviction": composed(skip_layers=[1])})
    context = run.read_prompt(TEXT[:PROMPT])
    assert held_by_layer(context) == (14, 40)
    for token in TEXT[PROMPT:]:
        run.advance([context], [token])
    assert held_by_layer(context) == (18, 60)


PER_LAYER = {
    "policy": "per_layer",
    "groups": [{"layers": [0], "eviction": {"policy": "sliding_window", "window": 12}}],
    "other": {"policy": "tova", "evicted_fraction": 0.5},
}


def test_each_layer_has_the_policy_of_its_group() -> None:
    run = runner({"eviction": PER_LAYER})
    context = run.read_prompt(TEXT[:PROMPT])
    assert held_by_layer(context) == (12, 20)
    for token in TEXT[PROMPT:]:
        run.advance([context], [token])
    assert held_by_layer(context) == (12, 40)
    assert context.layers[0].positions.tolist() == [list(range(48, 60))] * KV_HEADS
    assert context.layers[1].positions[0, 20:].tolist() == list(range(40, 60))


def test_a_layer_of_a_group_is_what_it_is_where_all_have_its_policy() -> None:
    window = {"policy": "sliding_window", "window": 12}
    mixed = runner({"eviction": PER_LAYER}).read_prompt(TEXT)
    alike = runner({"eviction": window}).read_prompt(TEXT)
    assert torch.equal(mixed.layers[0].keys.read(), alike.layers[0].keys.read())
    assert torch.equal(mixed.layers[0].positions, alike.layers[0].positions)


def test_reading_fewer_keys_in_one_layer_goes_with_evicting_in_another() -> None:
    topk = {"layers": [1], "eviction": {"policy": "topk", "k": 4}}
    eviction = PER_LAYER | {"groups": [topk], "other": {"policy": "h2o", "budget_tokens": 10}}
    context = runner({"eviction": eviction}).read_prompt(TEXT)
    assert held_by_layer(context) == (10, 60)
    assert [layer.policy.keys_per_query for layer in context.layers] == [None, 4]


@pytest.mark.parametrize(
    "eviction", [composed("snapkv"), composed("h2o"), PER_LAYER], ids=["s", "h", "layers"]
)
@pytest.mark.parametrize(
    "scheme", ["fp8_e4m3", "int8", "int4", {"scheme": "nf4", "block_size": HEAD_DIM}], ids=str
)
def test_what_is_left_of_a_quantized_cache_is_what_attention_reads_and_its_bytes_are_counted(
    scheme: Any, eviction: dict[str, Any]
) -> None:
    quantization = {"scheme": scheme} if isinstance(scheme, str) else scheme
    config = {"quantization": quantization, "eviction": eviction}
    run = runner(config)
    context = run.read_prompt(TEXT[:PROMPT])
    for token in TEXT[PROMPT:]:
        run.advance([context], [token])
    parsed = KVConfig.model_validate(config)
    assert held_by_layer(context) == kept_by_layer(parsed.eviction, 60, layers=2, decode_tokens=20)
    for layer in context.layers:
        for store in (layer.keys, layer.values):
            left = store.codec.decode([grown.view for grown in store._encoded])
            assert torch.equal(left, store.read())
    question = MemoryQuestion(
        quantization=parsed.quantization, eviction=parsed.eviction, context=60, decode_tokens=20
    )
    assert context.nbytes == sequence_bytes(SHAPE, question)


def test_kvquant_goes_with_what_keeps_the_same_in_all_heads() -> None:
    run = nuq_runner(3, eviction=composed("tova"))
    context = run.read_prompt(TEXT[:PROMPT])
    for token in TEXT[PROMPT:]:
        run.advance([context], [token])
    assert held_by_layer(context) == (18, 18)


@pytest.mark.parametrize("budget", [{"evicted_fraction": 0.5}, {"budget_tokens": 14}], ids=str)
def test_the_engine_measures_both_policies_on_a_sequence_of_its_own(
    budget: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    eviction = composed() | {"prompt": {"policy": "h2o", **budget}}
    run = runner({"eviction": eviction})
    measured = measure_cache(run, longest=200, vocabulary=model().config.vocab_size, step=1)
    first = 18 if "evicted_fraction" in budget else 14
    assert measured.held_by_layer == (first, first)
    assert measured.decoded == 18 - first + 8
    assert measured.held_after_decoding == (18, 18)
    tell(measured, run.config, max_model_len=200, compute="float32", piece=None)
    log = capsys.readouterr().out
    metrics = (
        'vllm:cache_config_info{cache_dtype="auto",block_size="1",kv_cache_memory_bytes="1024",'
        'kv_cache_size_tokens="16",enable_prefix_caching="False"} 1\n'
    )
    effective = Reference().effective(metrics, {"data": [{"max_model_len": 200}]}, log)
    assert effective.kept_after_decoding == {"0": 18, "1": 18}
    assert effective.evidence["kept_after_decoding"] == "measured"
    assert json.loads(json.dumps(effective.document))["decoded_tokens"] == measured.decoded


@pytest.mark.parametrize(
    ("eviction", "longest", "lengths"),
    [
        (composed(), 200, (188, 12)),  # 14 of the prompt, 18 while decoding, and 8 beyond
        (composed() | {"prompt": {"policy": "tova", "evicted_fraction": 0.5}}, 2048, (37, 8)),
        (composed() | {"prompt": {"policy": "tova", "budget_tokens": 30}}, 100, (92, 8)),
        (composed() | {"prompt": {"policy": "tova", "evicted_fraction": 0.5}}, 30, (8, 22)),
        (composed() | {"prompt": {"policy": "tova", "evicted_fraction": 0.5}}, 24, (24, 0)),
        (composed(decode={"policy": "sliding_window", "window": 4000}), 8192, (1024, 0)),
        (PER_LAYER, 8192, (1024, 0)),
        (PER_LAYER | {"other": {"policy": "sliding_window", "window": 2048}}, 8192, (3072, 0)),
    ],
)
def test_the_cache_is_tried_on_as_few_tokens_as_show_every_policy(
    eviction: dict[str, Any], longest: int, lengths: tuple[int, int]
) -> None:
    parsed = KVConfig.model_validate({"eviction": eviction}).eviction
    assert trial_lengths(parsed, longest=longest, layers=2) == lengths


@pytest.mark.parametrize(
    ("window", "longest", "lengths"),
    [
        (
            400,
            1920,
            (1890, 30),
        ),  # a fifth stays where no layer is skipped, so that all layers together keep 0.6
        (400, 8192, (2004, 8)),
        (1000, 8192, (4096, 190)),
        (1000, 1920, (1024, 0)),  # too few for the bound
    ],
)
def test_a_bound_is_tried_in_the_layers_that_are_not_skipped(
    window: int, longest: int, lengths: tuple[int, int]
) -> None:
    prompt = {"policy": "snapkv", "evicted_fraction": 0.4}
    decode = {"policy": "sliding_window", "window": window}
    document = composed(decode=decode) | {"prompt": prompt, "skip_layers": [*range(15)]}
    parsed = KVConfig.model_validate({"eviction": document}).eviction
    assert isinstance(parsed, Composed)
    prompt_tokens, decoded = trial_lengths(parsed, longest=longest, layers=30)
    assert (prompt_tokens, decoded) == lengths
    left = max(left_to_bound(parsed, prompt_tokens, layers=30))
    assert prompt_tokens + decoded <= longest
    assert left + decoded >= window + BEYOND or not decoded


def test_a_bound_is_seen_in_effect_in_the_layers_that_are_not_skipped() -> None:
    eviction = composed() | {"prompt": {"policy": "tova", "evicted_fraction": 0.3}, "skip_layers": [0]}
    run = runner({"eviction": eviction})
    measured = measure_cache(run, longest=200, vocabulary=model().config.vocab_size, step=1)
    assert measured.held_by_layer[0] == measured.seen
    assert measured.held_by_layer[1] <= 18 < measured.held_by_layer[1] + measured.decoded
    assert measured.held_after_decoding == (measured.seen + measured.decoded, 18)
