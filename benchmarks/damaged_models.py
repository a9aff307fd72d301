"""Copies of a model whose cached keys and values carry an error of a chosen size, and nothing else is changed.

Keys and values are the outputs of two projections per layer. Gaussian noise in those weights puts the same kind of
error into every key and value that is ever cached, on every engine.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "keys": ("k_proj",),
    "values": ("v_proj",),
    "both": ("k_proj", "v_proj"),
}
"""What a copy's noise strikes -> the projections that make it."""


def noisy_copy(source: Path, target: Path, *, part: str, strength: float, seed: int) -> None:
    """Copy a model directory; noise of `strength` times each projection's root mean square is added to its weights."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target, dirs_exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    weights = load_file(source / "model.safetensors")
    for name in sorted(weights):
        if any(f".{projection}." in name for projection in PARTS[part]):
            weight = weights[name].float()
            noise = torch.randn(weight.shape, generator=generator)
            weights[name] = (weight + strength * weight.square().mean().sqrt() * noise).to(
                weights[name].dtype
            )
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
