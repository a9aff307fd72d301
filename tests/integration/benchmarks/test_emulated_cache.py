"""What the emulated caches make of keys and values."""

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

import torch
from arms import CACHES
from emulated_cache import ROUNDINGS


def values() -> torch.Tensor:
    """Keys of two tokens and 64 channels, small and large ones."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.logspace(-4, 2, 64)
    return torch.randn(2, 64, generator=generator) * sizes


@pytest.mark.parametrize(
    ("cache", "format_"), [("fp8_e4m3", torch.float8_e4m3fn), ("fp8_e5m2", torch.float8_e5m2)]
)
def test_truncation_gives_the_next_value_of_the_format_towards_zero(cache: str, format_: torch.dtype) -> None:
    x = values()
    rounded = ROUNDINGS[cache](x)
    every = torch.arange(256, dtype=torch.uint8).view(format_).float()
    every = every[torch.isfinite(every)].abs().unique()
    expected = every[torch.searchsorted(every, x.abs(), right=True) - 1]
    assert torch.equal(rounded.abs(), expected)
    assert not ((rounded * x) < 0).any()


@pytest.mark.parametrize("cache", CACHES)
def test_what_is_rounded_already_stays(cache: str) -> None:
    once = ROUNDINGS[cache](values()).float()
    assert torch.allclose(ROUNDINGS[cache](once).float(), once)


@pytest.mark.parametrize(("cache", "levels"), [("int8", 255), ("int4", 15), ("int3", 7)])
def test_integers_have_as_many_levels_as_their_bits(cache: str, levels: int) -> None:
    x = torch.randn(1, 4096, generator=torch.Generator().manual_seed(1))
    assert len(ROUNDINGS[cache](x).unique()) <= levels
