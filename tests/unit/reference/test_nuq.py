"""KVQuant's datatype against its definition, element by element, and its place in the cache."""

from typing import Any

import pytest
import torch

from gatekeeper.domain.kv_account import MemoryQuestion, sequence_bytes
from gatekeeper.domain.kv_memory import ModelShape, kv_bytes_per_token
from tests.unit.reference.nuq_tiny import fitted, layers, nuq_runner, observed, rotary, scheme
from tests.unit.reference.tiny import HEAD_DIM, HEADS, KV_HEADS, LAYERS, decoded, model, runner, tokens
from workers.engines.reference.calibration import OBSERVED, best_levels, observe
from workers.engines.reference.nuq import NuqKeys, NuqValues, over_heads, steady_rotary

SHAPE = ModelShape(
    layers=LAYERS, attention_heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, max_context=512
)
TEXT = tokens(60)


def drawn(count: int = 6, seed: int = 3) -> torch.Tensor:
    return torch.randn(1, KV_HEADS, count, HEAD_DIM, generator=torch.Generator().manual_seed(seed))


def explicit(
    token: list[float], middle: list[float], reach: list[float], levels: list[float], apart: list[int]
) -> list[float]:
    """One token's vector over all heads as the scheme has it."""
    found = []
    for place, value in enumerate(token):
        if place in apart:
            found.append(float(torch.tensor(value).half()))
            continue
        normal = (value - middle[place]) / reach[place]
        nearest = min(levels, key=lambda level: abs(level - normal))
        found.append(middle[place] + reach[place] * nearest)
    return found


def test_keys_take_the_nearest_level_of_their_channels_range_but_for_the_furthest_out() -> None:
    codec, x = layers(3)[0].keys, drawn()
    assert codec.outliers == 4  # 5 % of 64 elements, rounded up
    found = over_heads(codec.decode(codec.encode(x)))[0, 0]
    middle, reach = codec.middle.flatten().tolist(), codec.reach.flatten().tolist()
    for row, token in enumerate(over_heads(x)[0, 0].tolist()):
        out = [abs(value - m) / r for value, m, r in zip(token, middle, reach, strict=True)]
        furthest = sorted(range(len(out)), key=lambda place: -out[place])[:4]
        expected = explicit(token, middle, reach, codec.levels.tolist(), furthest)
        assert found[row].tolist() == pytest.approx(expected, abs=1e-5)


def test_values_take_the_nearest_level_of_their_tokens_range_without_its_outliers() -> None:
    codec, x = layers(3)[0].values, drawn()
    x[0, 1, 2, 5] = 40.0
    packed, scale, kept, places = codec.encode(x)
    assert (packed.dtype, packed.shape) == (torch.uint8, (1, KV_HEADS, 6, HEAD_DIM * 3 // 8))
    assert (kept.dtype, places.dtype) == (torch.float16, torch.int16)
    assert HEAD_DIM + 5 in places[0, 0, 2].tolist()
    found = over_heads(codec.decode((packed, scale, kept, places)))[0, 0]
    for row, token in enumerate(over_heads(x)[0, 0].tolist()):
        apart = places[0, 0, row].tolist()
        rest = [value for place, value in enumerate(token) if place not in apart]
        middle, reach = scale[0, 0, row].tolist()
        assert middle == pytest.approx((max(rest) + min(rest)) / 2, abs=2e-3)
        assert reach == pytest.approx((max(rest) - min(rest)) / 2, rel=1e-3)
        width = len(token)
        expected = explicit(token, [middle] * width, [reach] * width, codec.levels.tolist(), apart)
        assert found[row].tolist() == pytest.approx(expected, abs=1e-5)


def test_more_bits_and_more_outliers_err_less() -> None:
    def error(codec: NuqKeys | NuqValues, x: torch.Tensor) -> float:
        return float((codec.decode(codec.encode(x)) - x).pow(2).mean())

    keys, values = observed()[0].keys.transpose(0, 1)[None], observed()[0].values.transpose(0, 1)[None]
    for name, x in (("keys", keys), ("values", values)):
        by_bits = [error(getattr(layers(bits)[0], name), x) for bits in (4, 3, 2)]
        by_outliers = [error(getattr(layers(2, share)[0], name), x) for share in (0.1, 0.05, 0.0)]
        assert by_bits == sorted(by_bits)
        assert by_outliers == sorted(by_outliers)
        assert by_bits[0] < by_bits[2] / 4


def test_levels_are_the_best_intervals_and_weights_draw_them() -> None:
    x = torch.tensor([-0.9, -0.8, -0.1, 0.0, 0.1, 0.7, 0.9, 5.0])
    even = best_levels(x, torch.ones(8), 3)
    assert even.tolist() == pytest.approx([-0.85, 0.0, 0.8])
    heavy = best_levels(x, torch.tensor([1.0, 1, 1, 1, 1, 1, 3, 100]), 3)
    assert heavy.tolist() == pytest.approx([-0.85, 0.0, 0.85])


def test_levels_err_less_than_evenly_spaced_ones() -> None:
    x = torch.randn(4000, generator=torch.Generator().manual_seed(1)) / 4
    x = x[x.abs() <= 1]
    even = torch.linspace(-1, 1, 8)
    found = best_levels(x, torch.ones_like(x), 8)
    errors = [float((x[:, None] - levels).abs().amin(-1).pow(2).mean()) for levels in (found, even)]
    assert errors[0] < errors[1] / 1.5
    assert found.tolist() == sorted(found.tolist())


def test_a_key_is_turned_back_to_what_the_model_made_of_its_token() -> None:
    made: list[torch.Tensor] = []
    projection = model(OBSERVED).model.layers[1].self_attn.k_proj
    hook = projection.register_forward_hook(lambda *call: made.append(call[2].detach()))
    (cached, *_) = observe(model(OBSERVED), rotary(), [TEXT])[1:]
    hook.remove()
    assert torch.allclose(cached.keys.flatten(1), made[0][0, 1:], atol=1e-5)


def test_a_gradient_is_that_of_the_loss_by_the_cached_element() -> None:
    """Moving one value along its gradient moves the loss by as much."""
    cached = observe(model(OBSERVED), rotary(), [TEXT])[1]
    place = int(cached.value_gradients.abs().argmax())
    token, head, channel = (int(i) for i in torch.unravel_index(torch.tensor(place), cached.values.shape))
    projection, step = model(OBSERVED).model.layers[1].self_attn.v_proj, 1e-2

    def loss(by: float) -> float:
        def shift(_module: Any, _given: Any, made: torch.Tensor) -> torch.Tensor:
            made = made.clone()
            made[0, token + 1, head * HEAD_DIM + channel] += by
            return made

        hook = projection.register_forward_hook(shift)
        logits = model(OBSERVED)(inputs_embeds=embedded, use_cache=False, observed={}).logits[0]
        hook.remove()
        lost = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(TEXT[1:]), reduction="sum")
        return float(lost.detach())

    embedded = model(OBSERVED).get_input_embeddings()(torch.tensor([TEXT])).requires_grad_()
    expected = float(cached.value_gradients[token, head, channel])
    assert (loss(step) - loss(-step)) / (2 * step) == pytest.approx(expected, rel=0.05)


def test_the_first_token_stays_in_sixteen_bits_and_the_others_do_not() -> None:
    layer, full = nuq_runner(2).read_prompt(TEXT).layers[0], runner().read_prompt(TEXT).layers[0]
    for store, plain in ((layer.keys, full.keys), (layer.values, full.values)):
        same = (store.read() == plain.read()).all(-1).all(1)[0].tolist()
        assert same == [True, *[False] * 59]


def test_keys_are_stored_without_their_rotation_and_read_with_it() -> None:
    layer = nuq_runner(4).read_prompt(TEXT).layers[0]
    codec = layer.keys.codec
    stored = codec.decode(tuple(grown.view for grown in layer.keys._encoded))
    assert torch.allclose(
        rotary().apply(stored, torch.arange(1, 60)), layer.keys.read()[..., 1:, :], atol=1e-5
    )
    assert not torch.allclose(stored, layer.keys.read()[..., 1:, :], atol=0.1)


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("outlier_fraction", [0.0, 0.01, 0.05])
def test_the_tensors_take_what_the_account_says(bits: int, outlier_fraction: float) -> None:
    run, quantization = nuq_runner(bits, outlier_fraction=outlier_fraction), scheme(bits, outlier_fraction)
    short, long = (run.read_prompt(tokens(count)).nbytes for count in (64, 192))
    assert (long - short) / 128 == pytest.approx(kv_bytes_per_token(SHAPE, quantization), rel=0.01)
    question = MemoryQuestion(quantization=quantization, context=192)
    assert long == pytest.approx(sequence_bytes(SHAPE, question), rel=0.01)


def test_a_prompt_in_pieces_and_a_decoded_one_are_stored_like_a_whole() -> None:
    text = TEXT[:20]
    whole, pieces = nuq_runner(3).read_prompt(text), nuq_runner(3, piece=7).read_prompt(text)
    run = nuq_runner(3)
    context = run.read_prompt(text[:1])
    for token in text[1:]:
        run.advance([context], [token])
    first = [each.layers[0].keys.read() for each in (whole, pieces, context)]
    for other in (
        1,
        2,
    ):  # products of other shapes are rounded apart, which moves an element by a level here and there
        assert float((first[0] - first[other]).abs().mean()) < 0.01
    assert whole.nbytes == pieces.nbytes == context.nbytes


@pytest.mark.parametrize(
    ("eviction", "kept"),
    [
        ({"policy": "streaming_llm", "sinks": 2, "window": 6}, [0, 1, 54, 55, 56, 57, 58, 59]),
        ({"policy": "sliding_window", "window": 8}, [52, 53, 54, 55, 56, 57, 58, 59]),
    ],
)
def test_what_stays_is_read_as_it_was_stored(eviction: dict[str, Any], kept: list[int]) -> None:
    run = nuq_runner(4, eviction=eviction)
    context = run.read_prompt(TEXT[:56])
    for token in TEXT[56:]:
        run.advance([context], [token])
    full, layer = nuq_runner(4).read_prompt(TEXT).layers[0], context.layers[0]
    assert layer.positions[0].tolist() == kept
    assert layer.keys.read().shape[-2] == layer.values.read().shape[-2] == len(kept)
    close = (layer.keys.read() - full.keys.read()[..., kept, :]).abs() < 0.05
    assert (
        float(close.float().mean()) > 0.98
    )  # the same tokens' keys in the first layer, products rounded apart
    spared = sum(position == 0 for position in kept)
    per_token = kv_bytes_per_token(SHAPE, scheme(4)) / LAYERS
    expected = (len(kept) - spared) * per_token + spared * 2 * KV_HEADS * HEAD_DIM * 2
    assert layer.nbytes == pytest.approx(expected, rel=0.01)


def test_fewer_bits_cost_a_model_more() -> None:
    plain = decoded(runner(), TEXT, prompt=52)
    losses = [
        float((plain.exp() * (plain - decoded(nuq_runner(bits), TEXT, prompt=52))).sum(-1).mean())
        for bits in (4, 3, 2)
    ]
    assert losses == sorted(losses)


def test_ranges_are_those_of_the_channels_without_their_outermost_elements() -> None:
    found, keys = fitted(3), observed()[0].keys
    low = found["key_middle"][0] - found["key_reach"][0]
    high = found["key_middle"][0] + found["key_reach"][0]
    outside = ((keys < low) | (keys > high)).float().mean((0,))
    assert float(outside.mean()) == pytest.approx(0.05, abs=0.005)


def test_a_rotation_that_grows_with_the_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(model().config.rope_parameters, "rope_type", "dynamic")
    with pytest.raises(ValueError, match="dynamic rotates by the length of the sequence"):
        steady_rotary(model())
