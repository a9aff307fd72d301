"""Matrix products on processors without AVX-512, in vLLM's own dispatch of linear layers."""

from collections.abc import Iterator

import pytest

from workers.engines import vllm_cpu

torch = pytest.importorskip("torch")


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
