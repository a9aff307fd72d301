"""The memory account against figures worked out by hand, published tables and what vLLM reported."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.eviction import Eviction
from gatekeeper.domain.kv_account import MemoryAccount, MemoryQuestion, memory_account
from gatekeeper.domain.kv_budget import kept_by_layer
from gatekeeper.domain.kv_config import Quantization
from gatekeeper.domain.kv_memory import GIB, ModelShape, kv_bytes_per_token

RECORDED = Path(__file__).resolve().parents[2] / "data" / "vllm"
LLAMA_8B = {
    "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
}  # fmt: skip
SMOLLM2 = ModelShape(
    layers=30, attention_heads=9, kv_heads=3, head_dim=64, max_context=8192, parameters=134_515_008
)
GEMMA3_4B = {
    "num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 2560,
    "model_type": "gemma3_text", "sliding_window": 1024, "max_position_embeddings": 131_072,
}  # fmt: skip


def quantization(**fields: Any) -> Quantization:
    parsed: Quantization = TypeAdapter(Quantization).validate_python(fields)
    return parsed


def eviction(**fields: Any) -> Eviction:
    parsed: Eviction = TypeAdapter(Eviction).validate_python(fields)
    return parsed


def account(shape: ModelShape = SMOLLM2, **fields: Any) -> MemoryAccount:
    return memory_account(shape, MemoryQuestion.model_validate({"context": 1024} | fields))


ELEMENTS = 32 * 8 * 2 * 128  # of a Llama-8B's token


@pytest.mark.parametrize(
    ("fields", "bits_per_element"),
    [
        ({"scheme": "none"}, 16),
        ({"scheme": "fp8_e4m3"}, 8),
        ({"scheme": "int8"}, 8 + 32 / 128),
        ({"scheme": "int4"}, 4 + 32 / 128),
        ({"scheme": "int4", "group_size": 64}, 4 + 32 / 64),
        ({"scheme": "nf4"}, 4.5),
        ({"scheme": "nvfp4"}, 4.5),
        ({"scheme": "kivi", "bits": 2}, 3),
        ({"scheme": "kivi", "bits": 4, "group_size": 64}, 4.5),
        (
            {"scheme": "kvquant", "bits": 4},
            4 + 32 * 11 / (8 * 128) + 32 / (2 * 8 * 128),
        ),  # 10.24 outliers a token
        ({"scheme": "kvquant", "bits": 3, "outlier_fraction": 0.0}, 3 + 32 / (2 * 8 * 128)),
        ({"scheme": "q8_0"}, 8.5),
        ({"scheme": "q8_0", "values": "q4_0"}, 6.5),
    ],
)
def test_every_scheme_takes_its_bits_and_its_metadata(
    fields: dict[str, Any], bits_per_element: float
) -> None:
    model = ModelShape.from_hf_config(LLAMA_8B)
    expected = pytest.approx(ELEMENTS * bits_per_element / 8)
    assert kv_bytes_per_token(model, quantization(**fields)) == expected


def test_turboquant_packs_slots_and_leaves_the_outermost_layers() -> None:
    """vLLM's slot of turboquant_3bit_nc at head_dim 128 has 48 + 2 + 48 + 4 = 102 bytes."""
    model = ModelShape.from_hf_config(LLAMA_8B)
    got = kv_bytes_per_token(model, quantization(scheme="turboquant_3bit_nc"))
    assert got == pytest.approx(28 * 8 * 102 + 4 * 8 * 2 * 128 * 2)


def test_kivi_holds_recent_tokens_in_full_precision() -> None:
    """1,000 tokens, residual 128: 1000 % 128 = 104 keys and 128 values in 16 bits, the others in 3."""
    got = account(quantization={"scheme": "kivi", "bits": 2}, context=1000).bytes_per_sequence
    elements = 30 * 3 * 64
    assert got == pytest.approx(elements * (104 * 16 + 896 * 3 + 128 * 16 + 872 * 3) / 8)


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"policy": "none"}, 1000),
        ({"policy": "topk", "k": 64}, 1000),
        ({"policy": "sliding_window", "window": 128}, 128),
        ({"policy": "streaming_llm", "sinks": 4, "window": 508}, 512),
        ({"policy": "h2o", "evicted_fraction": 0.75}, 250),
        ({"policy": "h2o", "budget_tokens": 2000}, 1000),
        ({"policy": "snapkv", "evicted_fraction": 0.5}, 400 + 200),
        ({"policy": "tova", "budget_tokens": 100}, 100 + 200),
    ],
)
def test_a_policy_keeps_what_its_budget_says(fields: dict[str, Any], kept: int) -> None:
    """Of 1,000 tokens, the last 200 decoded: selectors of the prompt leave those alone."""
    assert kept_by_layer(eviction(**fields), 1000, layers=1, decode_tokens=200) == (kept,)


def test_sliding_layers_hold_their_window_and_others_everything() -> None:
    """Gemma 3 4B: 34 layers, every sixth attends to everything, the others to the last 1,024 tokens."""
    model = ModelShape.from_hf_config(GEMMA3_4B)
    assert (model.window_layers, model.window, model.is_uniform) == (29, 1024, False)
    got = account(model, context=32_768).bytes_per_sequence
    assert got == (5 * 32_768 + 29 * 1024) * 4 * 2 * 256 * 2


@pytest.mark.parametrize(
    ("fields", "window_layers", "uncached"),
    [
        ({"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 8}, 2, 0),
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, 0, 3),
        (
            {
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "sliding_window": 8,
                "num_kv_shared_layers": 2,
            },
            1,
            2,
        ),
        ({"sliding_window": 8}, 4, 0),
        ({"sliding_window": 8, "use_sliding_window": False}, 0, 0),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}, 1, 0),
        ({"sliding_window": None}, 0, 0),
    ],
)
def test_configs_say_which_layers_slide_and_which_cache_nothing(
    fields: dict[str, Any], window_layers: int, uncached: int
) -> None:
    config = {
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "hidden_size": 64,
        "max_position_embeddings": 128,
    }
    model = ModelShape.from_hf_config(config | fields)
    assert (model.window_layers, model.uncached_layers) == (window_layers, uncached)


def test_layers_that_are_not_known_are_refused_by_name() -> None:
    config = {
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "hidden_size": 64,
        "max_position_embeddings": 128,
    }
    with pytest.raises(InvalidInput, match="heavily_compressed_attention"):
        ModelShape.from_hf_config(config | {"layer_types": ["heavily_compressed_attention"]})


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 8_030_261_248),
        ({"model_type": "mistral", "vocab_size": 32_000}, 7_241_732_096),
        ({"model_type": "mixtral", "vocab_size": 32_000, "num_local_experts": 8}, 46_702_792_704),
        (
            {"model_type": "qwen2", "vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944,
             "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4},
            7_615_616_512,
        ),
        (
            {"model_type": "qwen3_moe", "vocab_size": 151_936, "hidden_size": 2048, "moe_intermediate_size": 768,
             "num_experts": 128, "num_hidden_layers": 48, "num_key_value_heads": 4, "head_dim": 128},
            30_532_122_624,
        ),
        ({"model_type": "something_new"}, None),
    ],
)  # fmt: skip
def test_parameters_are_counted_as_transformers_counts_them(
    fields: dict[str, Any], count: int | None
) -> None:
    assert ModelShape.from_hf_config(LLAMA_8B | fields).parameters == count


def test_the_pool_holds_as_many_tokens_as_vllm_reported() -> None:
    said = dict(re.findall(r'(\w+)="([^"]*)"', (RECORDED / "scheduling.metrics").read_text()))
    block, memory = int(said["block_size"]), int(said["kv_cache_memory_bytes"])
    got = account(
        context=block, block_size=block, memory_gib=memory / GIB, gpu_memory_utilization=1.0, weights_gib=1e-9
    )
    assert got.max_concurrency == int(said["num_gpu_blocks"])
    assert got.pool_tokens == pytest.approx(int(said["kv_cache_size_tokens"]), rel=0.01)


@pytest.mark.parametrize(("scheme", "reported"), [("none", 23_045), ("fp8_e4m3", 11_523)])
def test_bytes_per_token_agree_with_vllm_within_a_percent(scheme: str, reported: int) -> None:
    assert account(quantization={"scheme": scheme}).bytes_per_token == pytest.approx(reported, rel=0.01)


def test_weights_and_overhead_leave_the_rest_to_the_pool() -> None:
    got = account(ModelShape.from_hf_config(LLAMA_8B), context=32_768, device="h100-80gb", overhead_gib=2.0)
    usable = 81_559 * 2**20 * 0.92 - 2 * GIB
    assert got.pool_bytes == int(usable - 2 * 8_030_261_248)
    assert got.max_concurrency == math.floor((usable - 2 * 8_030_261_248) / (4 * GIB))
    assert not account(context=8192, device="t4-16gb", concurrency=1000).fits


def test_heads_are_shared_out_over_devices_and_a_latent_is_copied() -> None:
    model = ModelShape.from_hf_config(LLAMA_8B)
    alone = account(model, device="h100-80gb").bytes_per_sequence
    assert account(model, device="h100-80gb", devices=8).bytes_per_sequence == alone
    assert account(model, device="h100-80gb", devices=16).bytes_per_sequence == 2 * alone
    latent = model.model_copy(update={"latent_dim": 512, "rope_dim": 64})
    alone = account(latent, device="h100-80gb").bytes_per_sequence
    assert alone == 32 * 576 * 2 * 1024
    assert account(latent, device="h100-80gb", devices=8).bytes_per_sequence == 8 * alone


def test_the_full_cache_is_copied_over_devices_as_the_stored_one_is() -> None:
    """Eight KV heads on sixteen devices: each cache is there twice, whether the devices' memory is known or not."""
    model, fp8 = ModelShape.from_hf_config(LLAMA_8B), {"quantization": {"scheme": "fp8_e4m3"}}
    alone = account(model, **fp8)
    for where in ({"devices": 16}, {"devices": 16, "device": "h100-80gb"}):
        shared = account(model, **fp8, **where)
        assert shared.full_cache_bytes_per_sequence == 2 * alone.full_cache_bytes_per_sequence
        assert shared.ratio == shared.full_cache_bytes_per_sequence / shared.bytes_per_sequence == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"device": "abacus"}, "h100-80gb"),
        ({"device": "h100-80gb", "memory_gib": 80.0}, "only one of device and memory_gib"),
        ({"decode_tokens": 1024}, "decode_tokens"),
        ({"quantization": {"scheme": "int3"}}, "int3"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        account(**fields)


SCHEMES = [
    {"scheme": "none"}, {"scheme": "fp8_e4m3"}, {"scheme": "int8"}, {"scheme": "int4"}, {"scheme": "nf4"},
    {"scheme": "kivi", "bits": 2}, {"scheme": "kivi", "bits": 4}, {"scheme": "kvquant", "bits": 3}, {"scheme": "q4_0"},
]  # fmt: skip
POLICIES = [
    {"policy": "none"}, {"policy": "sliding_window", "window": 300}, {"policy": "streaming_llm", "window": 200},
    {"policy": "h2o", "evicted_fraction": 0.5}, {"policy": "snapkv", "budget_tokens": 256},
]  # fmt: skip


@given(
    context=st.integers(2, 100_000),
    scheme=st.sampled_from(SCHEMES),
    policy=st.sampled_from(POLICIES),
    block=st.sampled_from([None, 16, 128]),
)
def test_no_scheme_or_policy_takes_more_than_the_full_cache_and_more_tokens_never_take_less(
    context: int, scheme: dict[str, Any], policy: dict[str, Any], block: int | None
) -> None:
    fields: dict[str, Any] = {"quantization": scheme, "eviction": policy, "block_size": block}
    got, longer = account(**fields, context=context), account(**fields, context=context + 128)
    assert got.ratio >= 1
    # KIVI's recent tokens in full precision come and go.
    assert longer.bytes_per_sequence >= got.bytes_per_sequence or scheme["scheme"] == "kivi"
