"""Expected attention, against queries drawn from the distribution that it assumes, and its rotary embedding."""

import math
from typing import Any

import pytest
import torch

from tests.unit.reference.tiny import HEAD_DIM, KV_HEADS, LAYERS, model, runner, tokens
from workers.engines.reference.expected_attention import SINKS, ExpectedAttention
from workers.engines.reference.policies import Prompt
from workers.engines.reference.rotary import Rotary, tried_rotary

SCALING = HEAD_DIM**-0.5


def rotated(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Channel by channel, as the definition has it: pairs of channels turn by an angle that grows with the place."""
    half = HEAD_DIM // 2
    out = x.clone()
    for channel in range(half):
        angle = positions * 10_000.0 ** (-2 * channel / HEAD_DIM)
        first, second = x[..., channel], x[..., channel + half]
        out[..., channel] = first * angle.cos() - second * angle.sin()
        out[..., channel + half] = second * angle.cos() + first * angle.sin()
    return out


def prompt(held: int, *, spread: float = 0.3) -> tuple[Prompt, torch.Tensor]:
    """A prompt, and its queries before they were rotated."""
    generator = torch.Generator().manual_seed(3)
    keys, values = (torch.randn(KV_HEADS, held, HEAD_DIM, generator=generator) for _ in range(2))
    centre = torch.randn(4, 1, HEAD_DIM, generator=generator)
    plain = centre + spread * torch.randn(4, held, HEAD_DIM, generator=generator)
    queries = rotated(plain, torch.arange(float(held)))
    return Prompt(queries=queries, keys=keys, values=values, scaling=SCALING), plain


def test_undoing_a_rotation_gives_what_was_before() -> None:
    plain = torch.randn(4, 9, HEAD_DIM, generator=torch.Generator().manual_seed(1))
    places = torch.arange(30, 39)
    found = Rotary.of(model()).undo(rotated(plain, places.float()), places)
    assert torch.allclose(found, plain, atol=1e-4)


def test_the_mean_matrix_rotates_to_the_mean_over_places() -> None:
    plain = torch.randn(5, HEAD_DIM, generator=torch.Generator().manual_seed(1))
    places = torch.arange(60, 90)
    matrix = Rotary.of(model()).mean_matrix(places, like=plain)
    expected = torch.stack([rotated(plain, torch.tensor(float(place))) for place in places]).mean(0)
    assert torch.allclose(plain @ matrix.T, expected, atol=1e-4)


def test_a_score_is_the_mean_of_what_queries_of_that_distribution_attend_to() -> None:
    """The formula against queries that are drawn: mean and covariance of the prompt's, turned by the mean matrix."""
    given, plain = prompt(40)
    rotary = Rotary.of(model())
    scores = ExpectedAttention(rotary=rotary, future_tokens=16)(given)
    turn = rotary.mean_matrix(torch.arange(40, 56), like=plain)
    drawn = torch.Generator().manual_seed(7)
    for head in range(KV_HEADS):
        shares = []
        for query_head in (2 * head, 2 * head + 1):
            seen = plain[query_head, SINKS:]
            covariance = torch.cov(seen.T, correction=0) + 1e-9 * torch.eye(HEAD_DIM)
            noise = torch.randn(200_000, HEAD_DIM, generator=drawn) @ torch.linalg.cholesky(covariance).T
            future = (seen.mean(0) + noise) @ turn.T
            weights = (future @ given.keys[head, SINKS:].T * SCALING).exp().mean(0)
            shares.append(weights / weights.sum())
        expected = torch.stack(shares).mean(0) * given.values[head, SINKS:].norm(dim=-1)
        assert torch.allclose(scores[head, SINKS:], expected, rtol=0.05)


def test_the_first_tokens_always_stay_and_short_prompts_whole() -> None:
    given, _ = prompt(40)
    score = ExpectedAttention(rotary=Rotary.of(model()), future_tokens=16)
    assert (score(given)[:, :SINKS] == math.inf).all()
    assert (score(prompt(3)[0]) == math.inf).all()
    context = runner({"eviction": {"policy": "expected_attention", "budget_tokens": 10}}).read_prompt(
        tokens(60)
    )
    assert all(layer.positions[:, :SINKS].tolist() == [[0, 1, 2, 3]] * KV_HEADS for layer in context.layers)


def test_the_engine_scores_with_the_queries_of_the_whole_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces too; what is kept is what the score of queries, keys and values says that transformers computes."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    score = ExpectedAttention.__call__

    def watched(self: ExpectedAttention, given: Prompt) -> torch.Tensor:
        scores = score(self, given)
        seen.append((given.queries, scores))
        return scores

    monkeypatch.setattr(ExpectedAttention, "__call__", watched)
    config = {"eviction": {"policy": "expected_attention", "evicted_fraction": 0.5, "future_tokens": 32}}
    text = tokens(60)
    context = runner(config, piece=7).read_prompt(text)
    assert [queries.shape[-2] for queries, _ in seen] == [60] * LAYERS
    module = model("eager").model
    with torch.inference_mode():
        hidden = module.layers[0].input_layernorm(module.embed_tokens(torch.tensor([text])))
        plain = module.layers[0].self_attn.q_proj(hidden)[0].unflatten(-1, (-1, HEAD_DIM)).transpose(0, 1)
    assert torch.allclose(Rotary.of(model()).undo(seen[0][0], torch.arange(60)), plain, atol=1e-3)
    for head in range(KV_HEADS):
        expected = seen[0][1][head].argsort(descending=True, stable=True)[:30].sort().values
        assert context.layers[0].positions[head].tolist() == expected.tolist()


def test_another_rotary_embedding_than_llamas_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tried_rotary(model())
    monkeypatch.setattr("workers.engines.reference.rotary.turned", lambda x: torch.roll(x, 1, dims=-1))
    with pytest.raises(ValueError, match="not laid out"):
        tried_rotary(model())


def test_a_model_without_rotary_embedding_is_refused() -> None:
    class Plain:
        base_model: Any = None

    with pytest.raises(ValueError, match="no rotary embedding"):
        Rotary.of(Plain())
