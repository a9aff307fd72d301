"""What attention reads, and which tokens stay, against transformers' own attention under an explicit mask."""

from typing import Any

import pytest
import torch

from gatekeeper.domain.kv_budget import kept_by_layer
from gatekeeper.domain.kv_config import KVConfig
from tests.unit.reference.tiny import HEAD_DIM, KV_HEADS, decoded, masked, model, runner, tokens
from workers.engines.reference.policies import Prompt, keydiff, observed_attention, snapkv, tova
from workers.engines.reference.schemes import Geometry, make_layer

TEXT = tokens(60)
BUDGETED = ("h2o", "snapkv", "pyramidkv", "tova", "expected_attention", "knorm", "keydiff")
CAUSAL = torch.ones(60, 60, dtype=torch.bool).tril()


def exact(run_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **how: Any) -> torch.Tensor:
    """Decoded log-probabilities with the cache in 32 bits, so that only what is visible makes a difference."""
    from workers.engines.reference import store

    monkeypatch.setattr(store.SIXTEEN_BIT.__class__, "encode", lambda _self, x: (x.clone(),))
    return decoded(runner(run_config, **how), TEXT, prompt=40)


def test_the_full_cache_gives_what_transformers_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.allclose(exact({}, monkeypatch), masked(TEXT, CAUSAL)[39:], atol=1e-4)


def test_the_baseline_is_stored_in_sixteen_bits_and_read_as_stored() -> None:
    found = decoded(runner(), TEXT, prompt=40)
    assert not torch.allclose(found, masked(TEXT, CAUSAL)[39:], atol=1e-5)
    context = runner().read_prompt(TEXT)
    assert {layer.keys.stored_type for layer in context.layers} == {"bfloat16"}
    layer = context.layers[0]
    assert torch.equal(layer.keys.read(), layer.keys.read().bfloat16().float())


@pytest.mark.parametrize("piece", [None, 7])
@pytest.mark.parametrize(
    ("eviction", "sinks", "window"),
    [
        ({"policy": "streaming_llm", "sinks": 3, "window": 9}, 3, 9),
        ({"policy": "sliding_window", "window": 12}, 0, 12),
    ],
)
def test_a_bounded_cache_is_full_attention_under_a_mask_and_keeps_rotary_positions(
    eviction: dict[str, Any], sinks: int, window: int, piece: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = torch.arange(60)
    near = place[None, :] > place[:, None] - window
    expected = masked(TEXT, CAUSAL & (near | (place[None, :] < sinks)))
    found = exact({"eviction": eviction}, monkeypatch, piece=piece)
    assert torch.allclose(found, expected[39:], atol=1e-4)


def test_a_bounded_cache_stays_bounded_while_decoding() -> None:
    run = runner({"eviction": {"policy": "streaming_llm", "sinks": 2, "window": 6}})
    context = run.read_prompt(TEXT[:20])
    for token in TEXT[20:]:
        run.advance([context], [token])
        assert context.held_tokens == 8
    assert context.layers[0].positions[0].tolist() == [0, 1, 54, 55, 56, 57, 58, 59]
    assert context.layers[0].keys.read().shape[-2] == 8


@pytest.mark.parametrize("policy", BUDGETED)
@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_an_evicted_share_means_the_same_whatever_the_policy(policy: str, share: float) -> None:
    config = {"eviction": {"policy": policy, "evicted_fraction": share}}
    context = runner(config).read_prompt(TEXT)
    (expected,) = kept_by_layer(KVConfig.model_validate(config).eviction, len(TEXT), layers=1)
    assert context.held_tokens == expected == {0.25: 45, 0.5: 30, 0.8: 12}[share]


@pytest.mark.parametrize("policy", BUDGETED)
def test_a_retained_key_keeps_its_place_and_decoding_sees_only_what_is_kept(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first decoded token against full attention whose last query sees the kept tokens and itself."""
    config: dict[str, Any] = {"eviction": {"policy": policy, "budget_tokens": 20}}
    if policy in ("snapkv", "pyramidkv"):
        config["eviction"]["observation_window"] = 4
    monkeypatch.setattr(model().config, "num_hidden_layers", 1)
    monkeypatch.setattr(model("eager").config, "num_hidden_layers", 1)
    from workers.engines.reference import store

    monkeypatch.setattr(store.SIXTEEN_BIT.__class__, "encode", lambda _self, x: (x.clone(),))
    run = runner(config)
    context = run.read_prompt(TEXT[:40])
    kept = context.layers[0].positions
    run.advance([context], [TEXT[40]])
    heads = []
    for head in range(KV_HEADS):
        visible = CAUSAL[:41, :41].clone()
        visible[40, :40] = False
        visible[40, kept[head]] = True
        heads.append(visible)
    mask = torch.stack(heads).repeat_interleave(2, dim=0)[None]
    bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    with torch.inference_mode():
        logits = model("eager")(input_ids=torch.tensor([TEXT[:41]]), attention_mask=bias).logits[0, -1]
    assert torch.allclose(context.next_logprobs, logits.log_softmax(-1), atol=1e-4)


@pytest.mark.parametrize("policy", BUDGETED)
def test_pieces_of_a_prompt_are_compressed_once_all_of_it_is_there(policy: str) -> None:
    config = {"eviction": {"policy": policy, "evicted_fraction": 0.5}}
    whole, pieces = runner(config).read_prompt(TEXT), runner(config, piece=7).read_prompt(TEXT)
    assert pieces.pieces == 9
    for one, other in zip(whole.layers, pieces.layers, strict=True):
        assert torch.equal(one.positions, other.positions)


def prompt(count: int = 24, observed: int = 4) -> Prompt:
    generator = torch.Generator().manual_seed(5)
    keys, values = (torch.randn(2, count, 8, generator=generator) for _ in range(2))
    queries = torch.randn(4, observed, 8, generator=generator)
    return Prompt(queries=queries, keys=keys, values=values, scaling=8**-0.5)


def test_observed_attention_is_causal_softmax_of_the_last_queries() -> None:
    given = prompt()
    weights = observed_attention(given)
    for head in range(4):
        for row in range(4):
            seen = 24 - 3 + row
            scores = given.keys[head // 2, :seen] @ given.queries[head, row] * given.scaling
            assert torch.allclose(weights[head // 2, head % 2, row, :seen], scores.softmax(-1), atol=1e-6)
            assert weights[head // 2, head % 2, row, seen:].sum() == 0


def test_snapkv_keeps_its_window_and_pools_over_five_neighbours() -> None:
    given = prompt()
    scores, mean = snapkv(given), observed_attention(given).mean((1, 2))
    assert (scores[:, -4:] > scores[:, :-4].max()).all()
    for place in range(20):
        neighbours = [mean[:, near] for near in range(place - 2, place + 3) if 0 <= near < 20]
        assert torch.allclose(scores[:, place], sum(neighbours, torch.zeros(2)) / 5)


@pytest.mark.parametrize(("length", "window"), [(60, 64), (60, 40), (60, 30)])
def test_snapkv_keeps_the_newest_of_its_window_where_the_budget_is_smaller(length: int, window: int) -> None:
    eviction = {"policy": "snapkv", "evicted_fraction": 0.5, "observation_window": window}
    context = runner({"eviction": eviction}).read_prompt(TEXT[:length])
    for layer in context.layers:
        assert layer.positions.tolist() == [list(range(30, 60))] * KV_HEADS


def test_tova_asks_the_last_query_and_decides_alike_for_all_heads() -> None:
    given = prompt(observed=1)
    scores = tova(given)
    assert torch.equal(scores[0], scores[1])
    assert torch.allclose(scores[0], observed_attention(given)[:, :, 0].mean((0, 1)))


def test_keydiff_gives_up_keys_that_are_like_the_mean() -> None:
    keys = torch.ones(1, 6, 4)
    keys[0, 2] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    given = Prompt(queries=torch.zeros(1, 1, 4), keys=keys, values=keys, scaling=1.0)
    assert int(keydiff(given).argmax()) == 2


def test_h2o_keeps_the_newest_half_of_its_budget_and_the_most_attended_of_the_rest() -> None:
    context = runner({"eviction": {"policy": "h2o", "budget_tokens": 10}}).read_prompt(TEXT[:40])
    everything = masked_weights(TEXT[:40])
    first = context.layers[0].positions
    for head in range(KV_HEADS):
        gathered = everything[2 * head : 2 * head + 2].sum((0, 1))
        heavy = gathered[:35].argsort(descending=True)[:5].sort().values
        assert first[head].tolist() == [*heavy.tolist(), *range(35, 40)]


def masked_weights(text: list[int]) -> torch.Tensor:
    """Attention weights of the first layer, [heads, tokens, tokens], by transformers' eager attention."""
    with torch.inference_mode():
        answer = model("eager")(input_ids=torch.tensor([text]), output_attentions=True)
    weights: torch.Tensor = answer.attentions[0][0]
    return weights


def test_h2o_holds_its_budget_while_decoding_and_the_newest_token_stays() -> None:
    run = runner({"eviction": {"policy": "h2o", "budget_tokens": 10}})
    context = run.read_prompt(TEXT[:40])
    for number, token in enumerate(TEXT[40:], start=40):
        run.advance([context], [token])
        assert context.held_tokens == 10
        assert (
            context.layers[1].positions[:, -5:].tolist() == [list(range(number - 4, number + 1))] * KV_HEADS
        )


def test_a_prompt_selector_keeps_what_is_decoded() -> None:
    run = runner({"eviction": {"policy": "tova", "budget_tokens": 10}})
    context = run.read_prompt(TEXT[:40])
    for token in TEXT[40:]:
        run.advance([context], [token])
    assert context.held_tokens == 30
    assert context.layers[0].positions[0, 10:].tolist() == list(range(40, 60))


def test_each_query_attends_to_its_k_best_keys() -> None:
    config = KVConfig.model_validate({"eviction": {"policy": "topk", "k": 3}})
    layer = make_layer(config, Geometry(layers=1, head_dim=32), index=0)
    generator = torch.Generator().manual_seed(9)
    keys, values = (torch.randn(1, 2, 10, 32, generator=generator).bfloat16().float() for _ in range(2))
    query = torch.randn(1, 4, 10, 32, generator=generator)
    layer.append(keys, values)
    output = layer.attend(query, 1.0)
    scores = keys[0, 1] @ query[0, 3, 9]
    best = scores.argsort(descending=True)[:3]
    assert torch.allclose(output[0, 3, 9], scores[best].softmax(-1) @ values[0, 1, best], atol=1e-5)
    assert layer.held_tokens == 10


def test_k_beyond_the_context_is_full_attention() -> None:
    found = decoded(runner({"eviction": {"policy": "topk", "k": 500}}), TEXT, prompt=40)
    assert torch.allclose(found, decoded(runner(), TEXT, prompt=40), atol=1e-4)


def test_the_prompt_attends_to_quantized_keys_and_values() -> None:
    """A cache that hands out what it was given while the prompt is computed understates the error."""
    config = {"quantization": {"scheme": "int4"}}
    plain, quantized = (runner(c).read_prompt(TEXT, top=1).prompt_scores for c in ({}, config))
    changed = [abs(a.logprob - b.logprob) for a, b in zip(plain[1:], quantized[1:], strict=True)]
    assert sum(changed) / len(changed) > 0.01


def test_kivi_holds_back_full_precision_and_encodes_keys_in_whole_lumps() -> None:
    kivi = {"scheme": "kivi", "bits": 2, "group_size": 8, "residual_length": 16}
    context = runner({"quantization": kivi}).read_prompt(TEXT[:45])
    plain = runner().read_prompt(TEXT[:45])
    layer, full = context.layers[0], plain.layers[0]
    same_keys = (layer.keys.read() == full.keys.read()).all(-1).all(1)[0].tolist()
    same_values = (layer.values.read() == full.values.read()).all(-1).all(1)[0].tolist()
    assert same_keys == [False] * 32 + [True] * 13
    assert same_values == [False] * 29 + [True] * 16


def test_kivi_quantizes_later_tokens_when_their_lump_is_full() -> None:
    kivi = {"scheme": "kivi", "bits": 2, "group_size": 8, "residual_length": 16}
    run = runner({"quantization": kivi})
    context = run.read_prompt(TEXT[:45])
    for token in TEXT[45:49]:
        run.advance([context], [token])
    prompt_keys = run.read_prompt(TEXT[:49]).layers[0].keys.read()
    assert torch.allclose(context.layers[0].keys.read()[..., :48, :], prompt_keys[..., :48, :], atol=1e-3)


@pytest.mark.parametrize("policy", ["h2o", "snapkv", "streaming_llm"])
def test_quantization_and_eviction_combine(policy: str) -> None:
    eviction: dict[str, Any] = {"policy": policy, "evicted_fraction": 0.5}
    if policy == "streaming_llm":
        eviction = {"policy": policy, "sinks": 4, "window": 26}
    run = runner({"quantization": {"scheme": "int8"}, "eviction": eviction})
    context, full = run.read_prompt(TEXT), runner({"quantization": {"scheme": "int8"}}).read_prompt(TEXT)
    assert context.held_tokens == 30
    assert context.nbytes == full.nbytes / 2
    kept = context.layers[0].positions[0]
    assert torch.equal(context.layers[0].keys.read()[0, 0], full.layers[0].keys.read()[0, 0, kept])


def test_what_a_sequence_computes_does_not_depend_on_the_others() -> None:
    run = runner({"eviction": {"policy": "h2o", "budget_tokens": 10}}, rows=4)
    alone = decoded(run, TEXT, prompt=40)
    other, context = run.read_prompt(tokens(13, seed=8)), run.read_prompt(TEXT[:40])
    rows = [context.next_logprobs]
    for token in TEXT[40:]:
        run.advance([other, context], [5, token])
        rows.append(context.next_logprobs)
    assert torch.equal(alone, torch.stack(rows))


def test_a_larger_budget_is_never_worse_on_average() -> None:
    plain = decoded(runner(), TEXT, prompt=40)
    losses = [
        float((plain.exp() * (plain - decoded(run, TEXT, prompt=40))).sum(-1).mean())
        for run in (
            runner({"eviction": {"policy": "snapkv", "evicted_fraction": f, "observation_window": 4}})
            for f in (0.1, 0.5, 0.9)
        )
    ]
    assert losses == sorted(losses)


@pytest.mark.parametrize("policy", [*BUDGETED, "streaming_llm", "sliding_window"])
@pytest.mark.parametrize(
    "scheme", ["fp8_e4m3", "fp8_e5m2", "int8", "int4", {"scheme": "nf4", "block_size": HEAD_DIM}], ids=str
)
def test_what_any_policy_leaves_of_any_scheme_is_what_attention_reads(scheme: Any, policy: str) -> None:
    budget = {"evicted_fraction": 0.5} if policy in BUDGETED else {"window": 20}
    quantization = {"scheme": scheme} if isinstance(scheme, str) else scheme
    run = runner({"quantization": quantization, "eviction": {"policy": policy, **budget}})
    context = run.read_prompt(TEXT[:40])
    for token in TEXT[40:46]:
        run.advance([context], [token])
    assert context.held_tokens < context.seen_tokens
    for layer in context.layers:
        for store in (layer.keys, layer.values):
            left = store.codec.decode([grown.view for grown in store._encoded])
            assert torch.equal(left, store.read())
