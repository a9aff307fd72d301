"""vLLM's argv, environment and what is read back from it, against text that vLLM 0.32 really printed."""

import json

import pytest

from gatekeeper.domain.effective import compare, mismatches
from tests.fakes.engine import fake_plan
from workers.engines.base import parse_metrics
from workers.engines.vllm import Vllm

METRICS = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",cache_dtype="fp8_e4m3",enable_prefix_caching="True",engine="0",\
gpu_memory_utilization="0.92",kv_cache_max_concurrency="22.75",kv_cache_memory_bytes="1073741824",\
kv_cache_size_tokens="93184",num_gpu_blocks="728",sliding_window="None",user_specified_block_size="False"} 1.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 128.0
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 64.0
"""
LOG = "(EngineCore pid=1) INFO 11-30 11:52:23 [core.py:133] Initializing … dtype=torch.bfloat16, max_seq_len=4096"

IN_A_CORE = """\
(APIServer pid=1) INFO 11-30 12:33:25 [api_utils.py:286] non-default args: {}
(EngineCore pid=2) ERROR 11-30 12:34:51 [core.py:1510] EngineCore failed to start.
(EngineCore pid=2) ERROR 11-30 12:34:51 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=2) ERROR 11-30 12:34:51 [core.py:1510]   File "core.py", line 1482, in run_engine_core
(EngineCore pid=2) ERROR 11-30 12:34:51 [core.py:1510] ValueError: To serve at least one request, 0.18 GiB is needed.
RuntimeError: Engine core initialization failed. See root cause above.
"""
IN_A_WORKER = """\
(EngineCore pid=2) ERROR 11-30 12:34:51 [core.py:1510] Exception: WorkerProc initialization failed due to an exception.
(Worker pid=3) ERROR 11-30 12:34:50 [multiproc_executor.py:900] NotImplementedError: FP8 KV cache needs AVX-512
TimeoutError: Timed out waiting for engine core processes to start.
"""
IN_PYDANTIC = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, max_model_len (100000) is greater than 8192 [type=value_error, input_value=…]
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (IN_A_CORE, "ValueError: To serve at least one request, 0.18 GiB is needed."),
        (IN_A_WORKER, "NotImplementedError: FP8 KV cache needs AVX-512"),
        (IN_PYDANTIC, "Value error, max_model_len (100000) is greater than 8192"),
        (
            "usage: api_server\napi_server: error: unknown argument --x\n",
            "api_server: error: unknown argument --x",
        ),
        ("", "the engine said nothing"),
    ],
)
def test_the_root_cause_is_the_first_exception_that_is_nobodys_consequence(log: str, cause: str) -> None:
    assert Vllm().root_cause(log) == cause


def test_a_core_that_gave_up_counts_as_refused_before_the_server_notices() -> None:
    assert Vllm().has_given_up(IN_A_CORE)
    assert not Vllm().has_given_up(LOG)


def test_the_effective_configuration_is_what_the_engine_serves() -> None:
    effective = Vllm().effective(METRICS, {"data": [{"id": "m", "max_model_len": 4096}]}, LOG)
    assert (effective.cache_dtype, effective.prefix_caching, effective.sliding_window) == (
        "fp8_e4m3",
        True,
        None,
    )
    assert (effective.block_size, effective.max_model_len, effective.model_dtype) == (128, 4096, "bfloat16")
    assert effective.kv_bytes_per_token == pytest.approx(11_523, abs=1)


def test_an_engine_that_reports_nothing_agrees_with_nothing() -> None:
    effective = Vllm().effective("", {}, "")
    observed = compare(fake_plan().candidate, effective)
    assert {observation.agrees for observation in observed} == {None, False}
    assert [observation.setting for observation in mismatches(observed)] == ["cache_dtype"]


def test_counters_are_summed_over_engines() -> None:
    assert parse_metrics(METRICS)["vllm:prefix_cache_hits_total"] == 192.0


def test_both_arms_have_the_same_argv_but_for_the_kv_settings() -> None:
    plan = fake_plan({"quantization": {"scheme": "fp8_e5m2"}, "reuse": {"prefix_caching": True}})
    baseline, candidate = (list(Vllm().argv(arm, port=8000)) for arm in (plan.baseline, plan.candidate))
    assert [pair for pair in zip(baseline, candidate, strict=True) if pair[0] != pair[1]] == [
        ("auto", "fp8_e5m2"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
    ]
    assert candidate[candidate.index("--host") + 1] == "127.0.0.1"
    assert candidate[candidate.index("--max-num-seqs") + 1] == "16"
    assert candidate.count("--max-model-len") == 1
    assert "--enforce-eager" in candidate


def test_a_gpu_arm_is_one_device_and_keeps_the_engines_own_compilation() -> None:
    arm = fake_plan().candidate.model_copy(update={"device": "cuda"})
    assert "--enforce-eager" not in Vllm().argv(arm, port=1)
    assert Vllm().environment(arm, gpu="3")["CUDA_VISIBLE_DEVICES"] == "3"
    assert "VLLM_CPU_KVCACHE_SPACE" not in Vllm().environment(arm, gpu="3")


def test_a_local_model_is_served_without_a_hub_and_a_hub_model_at_its_revision() -> None:
    arm = fake_plan().candidate
    assert Vllm().environment(arm, gpu=None)["HF_HUB_OFFLINE"] == "1"
    hub = arm.model_copy(
        update={"model": arm.model.model_copy(update={"source": "org/m", "revision": "abc"})}
    )
    argv = Vllm().argv(hub, port=1)
    assert argv[argv.index("--revision") + 1] == "abc"
    assert "HF_HUB_OFFLINE" not in Vllm().environment(hub, gpu=None)


def test_a_sliding_window_is_given_for_every_layer() -> None:
    plan = fake_plan({"eviction": {"policy": "sliding_window", "window": 64}})
    argv = Vllm().argv(plan.candidate, port=1)
    overrides = json.loads(argv[argv.index("--hf-overrides") + 1])
    assert overrides == {"sliding_window": 64, "layer_types": ["sliding_attention"] * 2}


def test_a_gpu_pools_memory_comes_from_the_log_where_the_metric_leaves_it_out() -> None:
    metrics = METRICS.replace('kv_cache_memory_bytes="1073741824"', 'kv_cache_memory_bytes="None"')
    log = f"{LOG}\n(Worker pid=2) INFO [gpu_worker.py:760] Available KV cache memory: 1.00 GiB"
    effective = Vllm().effective(metrics, {}, log)
    assert effective.kv_cache_bytes == 2**30
