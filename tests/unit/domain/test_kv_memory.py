"""Bytes per token against figures worked out by hand and published for well-known models."""

import pytest
from pydantic import ValidationError

from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_account import MemoryQuestion, memory_account
from gatekeeper.domain.kv_config import Fp8, Int8, NoQuantization
from gatekeeper.domain.kv_memory import GIB, ModelShape, kv_bytes_per_token
from gatekeeper.domain.model_config import MOST_LAYERS

FP16, FP8 = NoQuantization(), Fp8(scheme="fp8_e4m3")


def shape(layers: int, heads: int, kv_heads: int, head_dim: int = 128) -> ModelShape:
    return ModelShape(
        layers=layers, attention_heads=heads, kv_heads=kv_heads, head_dim=head_dim, max_context=131_072
    )


@pytest.mark.parametrize(
    ("model", "quantization", "per_token", "gib_at_32k", "gib_at_128k"),
    [
        (shape(32, 32, 8), FP16, 131_072, 4, 16),
        (shape(80, 64, 64), FP16, 2_621_440, 80, 320),
        (shape(80, 64, 8), FP16, 327_680, 10, 40),
        (shape(80, 64, 8), FP8, 163_840, 5, 20),
        (shape(32, 32, 32), FP16, 524_288, 16, 64),
    ],
)
def test_reference_models_take_the_published_bytes(
    model: ModelShape, quantization: NoQuantization | Fp8, per_token: int, gib_at_32k: int, gib_at_128k: int
) -> None:
    assert kv_bytes_per_token(model, quantization) == per_token
    for context, gib in ((32_768, gib_at_32k), (131_072, gib_at_128k)):
        question = MemoryQuestion(quantization=quantization, context=context)
        assert memory_account(model, question).total_bytes == gib * GIB


def test_smollm2_takes_what_vllm_reports_within_a_block() -> None:
    smollm2 = shape(30, 9, 3, head_dim=64)
    assert kv_bytes_per_token(smollm2, FP16) == 23_040
    assert kv_bytes_per_token(smollm2, FP8) == 11_520
    assert kv_bytes_per_token(smollm2, Int8(scheme="int8")) == 11_520 * (1 + 4 / 64)


def test_a_latent_cache_holds_one_latent_and_one_rotary_part_per_layer() -> None:
    config = {
        "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "hidden_size": 7168,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "max_position_embeddings": 163_840,
    }  # fmt: skip
    assert kv_bytes_per_token(ModelShape.from_hf_config(config), FP16) == 61 * (512 + 64) * 2


def test_a_config_without_key_value_heads_means_one_per_attention_head() -> None:
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_size": 64,
        "max_position_embeddings": 128,
    }
    model = ModelShape.from_hf_config({"text_config": config})
    assert (model.kv_heads, model.head_dim) == (4, 16)


def test_a_config_that_is_no_decoder_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="num_attention_heads"):
        ModelShape.from_hf_config({"num_hidden_layers": 2})


EIGHT_BIT = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}


@pytest.mark.parametrize(
    ("quantization", "scheme"),
    [
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": EIGHT_BIT}, "8-bit float"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "FP8"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, "NVFP4"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "none"}, None),
        ({"quant_method": "fp8"}, None),
        ("fp8", None),
    ],
)
def test_a_checkpoint_that_quantizes_its_own_cache_is_recognised(
    quantization: object, scheme: str | None
) -> None:
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_size": 64,
        "max_position_embeddings": 128,
        "quantization_config": quantization,
    }
    assert ModelShape.from_hf_config(config).checkpoint_kv_scheme == scheme
    assert ModelShape.from_hf_config({"text_config": config}).checkpoint_kv_scheme == scheme


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", MOST_LAYERS + 1),
        ("num_hidden_layers", float("inf")),
        ("num_attention_heads", 0),
        ("head_dim", float("inf")),
    ],
)
def test_sizes_that_no_model_has_are_refused_before_anything_is_counted(field: str, value: float) -> None:
    config = {
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "hidden_size": 64,
        "max_position_embeddings": 100,
    }
    with pytest.raises(InvalidInput, match="model config"):
        ModelShape.from_hf_config(config | {field: value})


def test_a_shape_by_hand_has_at_most_as_many_layers_as_a_config() -> None:
    assert shape(MOST_LAYERS, 32, 8).layers == MOST_LAYERS
    with pytest.raises(ValidationError, match="less than or equal to 1000"):
        shape(MOST_LAYERS + 1, 32, 8)
