"""How vLLM's CPU build is launched on small machines, and the matrix products of processors without AVX-512."""

from collections.abc import Iterator

import pytest

from tests.fakes.engine import fake_plan
from workers.engines import vllm_cpu
from workers.engines.vllm import Vllm

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("vectors", "needed"),
    [
        ({"avx2"}, True),
        ({"avx2", "avx512f"}, False),
        ({"avx2", "avx512f", "avx512_bf16"}, False),
        ({"asimd", "bf16"}, False),
        (set(), False),
    ],
)
def test_only_x86_without_avx512_multiplies_in_32_bits(vectors: set[str], needed: bool) -> None:
    assert vllm_cpu.needs_float32_products(frozenset(vectors)) is needed


@pytest.fixture
def dispatch() -> Iterator[object]:
    utils = pytest.importorskip("vllm.model_executor.layers.utils")
    before = utils.dispatch_cpu_unquantized_gemm
    yield utils
    utils.dispatch_cpu_unquantized_gemm = before


def test_products_of_16_bit_weights_are_those_of_32_bits_rounded_once(
    dispatch: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(vllm_cpu.FLOAT32_PRODUCTS, "1")
    vllm_cpu.register()
    vllm_cpu.register()  # vLLM may call it more than once in a process
    layer = torch.nn.Linear(48, 32, dtype=torch.bfloat16)
    x = torch.randn(3, 5, 48, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(1))
    dispatch.dispatch_cpu_unquantized_gemm(layer, remove_weight=False)  # type: ignore[attr-defined]
    exact = x.double() @ layer.weight.double().T + layer.bias.double()
    made = layer.cpu_linear(x, layer.weight, layer.bias)
    assert made.dtype == torch.bfloat16
    assert torch.allclose(made.double(), exact, rtol=2**-8, atol=1e-5)
    assert isinstance(layer.cpu_linear, vllm_cpu.Float32Linear)


def test_an_engine_that_was_not_told_so_keeps_vllms_own_products(
    dispatch: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(vllm_cpu.FLOAT32_PRODUCTS, raising=False)
    own = dispatch.dispatch_cpu_unquantized_gemm  # type: ignore[attr-defined]
    vllm_cpu.register()
    assert dispatch.dispatch_cpu_unquantized_gemm is own  # type: ignore[attr-defined]


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
