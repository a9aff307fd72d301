"""How vLLM's CPU build is launched on small machines."""

import pytest

from tests.fakes.engine import fake_plan
from workers.engines import vllm_cpu
from workers.engines.vllm import Vllm


@pytest.mark.parametrize(
    ("vectors", "needed"),
    [
        ({"avx2"}, True),
        ({"avx2", "avx512f"}, True),
        ({"avx2", "avx512f", "avx512_bf16"}, False),
        ({"avx2", "avx512f", "amx_bf16", "amx_tile"}, False),
        ({"asimd", "bf16"}, False),
        (set(), False),
    ],
)
def test_only_x86_without_instructions_for_bfloat16_multiplies_in_32_bits(
    vectors: set[str], needed: bool
) -> None:
    assert vllm_cpu.needs_float32_products(frozenset(vectors)) is needed


@pytest.mark.parametrize(("count", "alone"), [(1, True), (2, True), (4, True), (8, False)])
def test_a_few_cores_are_all_used_by_one_process_and_many_are_bound_by_vllm(
    count: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_cpu, "cores", lambda: count)
    arm = fake_plan().candidate
    variables = Vllm().environment(arm, gpu=None)
    assert variables["OMP_NUM_THREADS"] == str(count)
    assert ("VLLM_CPU_OMP_THREADS_BIND" in variables) is alone
    assert (vllm_cpu.ONE_PROCESS in Vllm().argv(arm, port=1)) is alone


def test_a_gpu_arm_knows_nothing_of_all_that() -> None:
    arm = fake_plan().candidate.model_copy(update={"device": "cuda"})
    assert vllm_cpu.ONE_PROCESS not in Vllm().argv(arm, port=1)
    assert vllm_cpu.FLOAT32_PRODUCTS not in Vllm().environment(arm, gpu="0")


@pytest.mark.parametrize(
    ("chosen", "loaded"), [(None, True), ("other", False), (f"other,{vllm_cpu.PLUGIN}", True)]
)
def test_products_are_said_to_be_widened_only_where_vllm_will_load_the_plugin(
    chosen: str | None, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_cpu, "vector_extensions", lambda: frozenset({"avx2"}))
    if chosen is None:
        monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    else:
        monkeypatch.setenv("VLLM_PLUGINS", chosen)
    assert vllm_cpu.widens_products() is loaded
    assert (vllm_cpu.FLOAT32_PRODUCTS in Vllm().environment(fake_plan().candidate, gpu=None)) is loaded
