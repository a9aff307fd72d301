"""Rotary embedding against its definition, and the models whose embedding is refused before anything relies on it."""

from typing import Any

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from tests.unit.reference.tiny import HEAD_DIM, HEADS, KV_HEADS, LAYERS, model, rotated
from workers.engines.reference.layers import ATTENTION
from workers.engines.reference.rotary import Rotary
from workers.engines.reference.rotary_trial import tried_rotary

ROPE = {"rope_theta": 10_000.0, "factor": 2.0}
YARN = ROPE | {"rope_type": "yarn", "original_max_position_embeddings": 256}
LONGROPE = YARN | {
    "rope_type": "longrope", "short_factor": [1.0] * (HEAD_DIM // 2), "long_factor": [2.0] * (HEAD_DIM // 2),
}  # fmt: skip


def small(config: type[Any], causal: type[Any], **fields: Any) -> Any:
    torch.manual_seed(1)
    shape = {
        "vocab_size": 97, "hidden_size": HEADS * HEAD_DIM, "intermediate_size": 64, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": 512,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3,
    }  # fmt: skip
    return causal(config(**shape | fields, attn_implementation=ATTENTION)).eval()


def llama(**fields: Any) -> Any:
    return small(LlamaConfig, LlamaForCausalLM, **fields)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, HEAD_DIM, generator=torch.Generator().manual_seed(1))


def embedding(of: Any = None) -> Rotary:
    return tried_rotary(of or model(), method="kvquant")


def test_applying_is_the_definition_and_undoing_gives_what_was_before() -> None:
    plain, places = drawn(4, 9), torch.arange(30, 39)
    expected = rotated(plain, places.float())
    assert torch.allclose(embedding().apply(plain, places), expected, atol=1e-4)
    assert torch.allclose(embedding().undo(expected, places), plain, atol=1e-4)


def test_undoing_divides_a_scale_out() -> None:
    rotary, plain, places = embedding(llama(rope_parameters=YARN)), drawn(4, 9), torch.arange(30, 39)
    turned = rotary.apply(plain, places)
    assert float(turned.norm() / plain.norm()) > 1.05
    assert torch.allclose(rotary.undo(turned, places), plain, atol=1e-4)


def test_the_mean_matrix_rotates_to_the_mean_over_places() -> None:
    plain, places = drawn(5), torch.arange(60, 90)
    matrix = embedding().mean_matrix(places, like=plain)
    expected = torch.stack([rotated(plain, torch.tensor(float(place))) for place in places]).mean(0)
    assert torch.allclose(plain @ matrix.T, expected, atol=1e-4)


def test_models_that_normalise_queries_or_compute_in_sixteen_bits_are_known() -> None:
    plain, places = drawn(4, 9), torch.arange(30, 39)
    for known in (small(Qwen3Config, Qwen3ForCausalLM, head_dim=HEAD_DIM), llama().bfloat16()):
        rotary = embedding(known)
        assert torch.allclose(rotary.undo(rotary.apply(plain, places), places), plain, atol=1e-4)


def test_what_cannot_be_undone_is_refused_by_the_name_of_the_method_that_needs_it() -> None:
    half = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
    refused = [
        (small(GPT2Config, GPT2LMHeadModel), "GPT2LMHeadModel .* none that is known"),
        (llama(rope_parameters=ROPE | {"rope_type": "dynamic"}), r"change with the length .*\(dynamic\)"),
        (llama(rope_parameters=LONGROPE), r"change with the length .*\(longrope\)"),
        (small(Phi3Config, Phi3ForCausalLM, rope_parameters=half), "only a part of each head's channels"),
        (small(CohereConfig, CohereForCausalLM), "layer 0 does not turn channels as Llama does"),
        (small(SmolLM3Config, SmolLM3ForCausalLM, no_rope_layers=[1, 0]), "layer 1 does not turn channels"),
    ]
    for unknown, reason in refused:
        with pytest.raises(
            ValueError, match=f"^expected_attention works on what was before rotation.*{reason}"
        ):
            tried_rotary(unknown, method="expected_attention")
