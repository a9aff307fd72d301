"""SGLang, LMDeploy and TensorRT-LLM: argv, and the effective configuration from log lines in their documented form."""

from __future__ import annotations

from typing import Any

import pytest

from gatekeeper.domain.capability import CapableEngine
from gatekeeper.domain.change import Change
from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model, Plan, make_plan
from tests.fakes.engine import fake_plan
from workers.engines import ENGINES

# An 8B model with 8 KV heads of 128 in 32 layers: 131,072 bytes per token in 16 bit, 65,536 in FP8.
SHAPE = ModelShape(layers=32, attention_heads=32, kv_heads=8, head_dim=128, max_context=131_072)
SGLANG_LOG = """\
server_args=ServerArgs(model_path='/m', page_size=1, mem_fraction_static=0.8, disable_radix_cache=True)
[21:34:13 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 240128, K size: 7.33 GB, V size: 7.33 GB
[21:34:16 TP0] max_total_num_tokens=240128, chunked_prefill_size=512, max_running_requests=16, context_len=4096
"""
LMDEPLOY_LOG = """\
session_len=4096, max_batch_size=16, cache_block_seq_len=64, quant_policy=8, enable_prefix_caching=False)
[TM][INFO] [BlockManager] block_size = 4 MB
[TM][INFO] [BlockManager] max_block_count = 1274
"""
TENSORRT_LOG = """\
[I] LLM Args: kv_cache_config=KvCacheConfig(enable_block_reuse=True, free_gpu_memory_fraction=0.9, dtype='fp8')
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.56 GiB for max tokens in paged KV cache (8224).
[TensorRT-LLM][INFO] Number of tokens per block: 32.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.00 GiB for max tokens in paged KV cache (262144).
[TRT-LLM] [I] max_seq_len=4096, max_num_requests=16, max_num_tokens=512, max_batch_size=16
"""


def plan_for(engine: CapableEngine, candidate: dict[str, Any]) -> Plan:
    base = fake_plan()
    change = Change.model_validate(
        {"model": "m", "engine": engine, "candidate": candidate, "suite": "s", "policy": "p",
         "baseline": {"scheduling": {"max_model_len": 4096, "max_num_seqs": 16}}}
    )  # fmt: skip
    return make_plan(
        change, model=Model(name="m", source="/m", shape=SHAPE), suite=base.suite, policy=base.policy,
        device="cuda", allowed_arguments=frozenset(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "candidate", "words"),
    [
        ("sglang", {"quantization": {"scheme": "fp8_e4m3"}}, "--kv-cache-dtype fp8_e4m3"),
        (
            "sglang",
            {"quantization": {"scheme": "int8"}},
            "--int8-kv-cache --attention-backend triton --page-size 1",
        ),
        ("sglang", {"scheduling": {"max_num_batched_tokens": 512}}, "--chunked-prefill-size 512"),
        ("sglang", {"scheduling": {"chunked_prefill": False}}, "--chunked-prefill-size -1"),
        ("lmdeploy", {"quantization": {"scheme": "int4"}}, "--quant-policy 4"),
        ("lmdeploy", {"reuse": {"prefix_caching": True}}, "--quant-policy 0 --enable-prefix-caching"),
        ("tensorrt_llm", {"quantization": {"scheme": "nvfp4"}}, "--kv_cache_dtype nvfp4"),
        ("tensorrt_llm", {"scheduling": {"max_num_batched_tokens": 512}}, "--max_num_tokens 512"),
    ],
)
def test_each_setting_becomes_the_engines_flag(
    engine: CapableEngine, candidate: dict[str, Any], words: str
) -> None:
    plan = plan_for(engine, candidate)
    candidate_argv = " ".join(ENGINES[engine].argv(plan.candidate, port=8000))
    assert words in candidate_argv
    assert words not in " ".join(ENGINES[engine].argv(plan.baseline, port=8000))
    assert "127.0.0.1" in candidate_argv
    assert "4096" in candidate_argv


def test_a_baseline_reuses_no_prefix_where_that_can_be_said() -> None:
    plan = plan_for("sglang", {"quantization": {"scheme": "fp8_e5m2"}})
    assert "--disable-radix-cache" not in plan.baseline.serve_flags  # this baseline leaves it to the engine
    change = plan.change.model_copy(update={"baseline": None})
    again = make_plan(
        change, model=plan.baseline.model, suite=plan.suite, policy=plan.policy, device="cuda",
        allowed_arguments=frozenset(),
    )  # fmt: skip
    assert "--disable-radix-cache" in again.baseline.serve_flags


def test_what_an_engine_cannot_do_is_refused_in_the_plan() -> None:
    with pytest.raises(
        InvalidInput, match=r"candidate\.quantization\.scheme: lmdeploy 0\.7 does not store fp8_e4m3"
    ):
        plan_for("lmdeploy", {"quantization": {"scheme": "fp8_e4m3"}})


@pytest.mark.parametrize(
    ("engine", "scheme", "log", "per_token"),
    [
        ("sglang", "fp8_e4m3", SGLANG_LOG, 65_536),
        ("tensorrt_llm", "fp8_e4m3", TENSORRT_LOG, 65_536),
    ],
)
def test_a_cache_as_requested_agrees_and_its_bytes_are_read(
    engine: CapableEngine, scheme: str, log: str, per_token: float
) -> None:
    plan = plan_for(engine, {"quantization": {"scheme": scheme}})
    effective = ENGINES[engine].effective("", {}, log)
    assert effective.kv_bytes_per_token == pytest.approx(per_token, rel=0.01)
    assert (effective.max_model_len, effective.max_num_seqs) == (4096, 16)
    disagreeing = [row.setting for row in mismatches(compare(plan.candidate, effective))]
    assert disagreeing == []
    baseline = [row.setting for row in mismatches(compare(plan.baseline, effective))]
    assert {"cache_dtype", "kv_bytes_per_token"} <= set(baseline)


def test_of_lmdeploys_cache_only_its_own_word_is_known() -> None:
    """Its blocks are logged in whole MiB, so that the bytes of a token, scales and all, can't be told from that."""
    plan = plan_for("lmdeploy", {"quantization": {"scheme": "int8"}})
    effective = ENGINES["lmdeploy"].effective("", {}, LMDEPLOY_LOG)
    assert (effective.kv_cache_tokens, effective.kv_bytes_per_token) == (1274 * 64, None)
    assert set(effective.evidence.values()) == {"reported"}
    assert mismatches(compare(plan.candidate, effective)) == ()
    assert [row.setting for row in mismatches(compare(plan.baseline, effective))] == ["cache_dtype"]


@pytest.mark.parametrize("engine", ["sglang", "lmdeploy", "tensorrt_llm", "llama_cpp"])
def test_an_engine_that_says_nothing_has_not_applied_the_setting(engine: CapableEngine) -> None:
    plan = plan_for("sglang", {"quantization": {"scheme": "fp8_e4m3"}})
    effective = ENGINES[engine].effective("", {}, "")
    assert [row.setting for row in mismatches(compare(plan.candidate, effective))] == ["cache_dtype"]


def test_the_cause_of_a_failed_start_is_the_first_error() -> None:
    log = "loading\nRuntimeError: CUDA out of memory\nScheduler hit an exception: x\n"
    assert ENGINES["sglang"].root_cause(log) == "RuntimeError: CUDA out of memory"
    assert ENGINES["sglang"].has_given_up(log)
    assert not ENGINES["lmdeploy"].has_given_up(log)
    assert ENGINES["lmdeploy"].root_cause("") == "the engine said nothing"
