"""Memory of common accelerators, as the driver reports it: MiB of `memory.total` (`nvidia-smi`, `rocm-smi`).

That is what an engine shares out; a data sheet's round figure is up to 4 % off. Of other devices give the size by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

MIB: Final = 2**20

DeviceName = Literal[
    "t4-16gb",
    "v100-32gb",
    "rtx3090-24gb",
    "a10g-24gb",
    "l4-24gb",
    "rtx4090-24gb",
    "l40s-48gb",
    "a100-40gb",
    "a100-80gb",
    "h100-80gb",
    "h200-141gb",
    "b200-180gb",
    "mi300x-192gb",
]

MEMORY_MIB: Final[Mapping[DeviceName, int]] = {
    "t4-16gb": 15_360,
    "v100-32gb": 32_768,
    "rtx3090-24gb": 24_576,
    "a10g-24gb": 23_028,
    "l4-24gb": 23_034,
    "rtx4090-24gb": 24_564,
    "l40s-48gb": 46_068,
    "a100-40gb": 40_960,
    "a100-80gb": 81_920,
    "h100-80gb": 81_559,
    "h200-141gb": 143_771,
    "b200-180gb": 183_359,
    "mi300x-192gb": 196_592,
}


def memory_bytes(device: DeviceName) -> int:
    """The memory of a named device."""
    return MEMORY_MIB[device] * MIB
