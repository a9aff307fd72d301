"""The emulated matrix unit: what it computes, and what it loses."""

import pytest
import torch
from amx_fp8 import BASELINE, TILE, Kernel, divergence

AMX = Kernel(cache="bf16", smallest=2.0**-6)


def test_sums_that_are_large_enough_are_those_of_the_product() -> None:
    a, b = (torch.rand(2, 3, 40, generator=torch.Generator().manual_seed(seed)) + 0.5 for seed in (1, 2))
    assert torch.allclose(AMX.product(a, b.transpose(1, 2)), BASELINE.product(a, b.transpose(1, 2)))


def test_a_tile_whose_sums_stay_small_adds_nothing_and_the_others_all_of_theirs() -> None:
    weights = torch.tensor([[[1.0] * TILE + [0.0001] * TILE]])
    ones = torch.ones(1, 2 * TILE, 1)
    assert AMX.product(weights, ones).item() == TILE
    assert BASELINE.product(weights, ones).item() == pytest.approx(TILE * 1.0001)


def test_equal_distributions_do_not_diverge() -> None:
    logprobs = torch.log_softmax(torch.rand(2, 50), -1)
    assert divergence(logprobs, logprobs) == 0
