"""Devices of this machine: which there are, whether one is free, and a lock so that it has one job at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.vllm_flags import Device

MIB = 2**20
FREE_SHARE = 0.9
"""A GPU counts as free while at least this share of its memory is."""

LEAST_CPU_BYTES = 3 * 2**30
"""What a CPU engine takes at least: libraries and workers about 2 GiB, the pool 1 GiB."""

DEFAULT_GPU_SHARE = 0.92
"""vLLM's own `gpu_memory_utilization` (0.32 and 0.33)."""

GPU_SHARE_TOGETHER = 0.96
"""The most that engines on one GPU may take together; each also has a CUDA context outside its share."""


class NoDevice(GatekeeperError):
    """No device is free."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One line of nvidia-smi."""

    index: str
    uuid: str
    name: str
    used_bytes: int
    total_bytes: int

    @property
    def free(self) -> bool:
        """True if nobody else holds a noteworthy part of its memory."""
        return self.used_bytes <= (1 - FREE_SHARE) * self.total_bytes


def fit_together(plans: Sequence[ArmPlan], *, cpu_bytes_free: int) -> bool:
    """Whether engines with these plans can live on their device at the same time, each as it would run alone.

    On a GPU every engine takes the share of the memory that its configuration states, or vLLM's default, in advance; a
    smaller share would be another configuration. On CPU they take their libraries, weights and pool; weights that are
    not in a local directory have an unknown size, which does not fit.
    """
    if plans[0].device == "cuda":
        shares = [plan.config.scheduling.gpu_memory_utilization or DEFAULT_GPU_SHARE for plan in plans]
        return sum(shares) <= GPU_SHARE_TOGETHER
    weights = [_weight_bytes(Path(plan.model.source)) for plan in plans]
    return all(weights) and sum(weights) + len(plans) * LEAST_CPU_BYTES <= cpu_bytes_free


def _weight_bytes(source: Path) -> int:
    """The size of the weights in a model's directory, 0 where there are none."""
    return sum(path.stat().st_size for kind in ("safetensors", "bin") for path in source.glob(f"*.{kind}"))


def cpu_bytes_free() -> int:
    """The memory that can be had now."""
    return available_cpu_bytes(Path("/proc/meminfo").read_text(encoding="ascii"))


@contextlib.contextmanager
def reserve(device: Device, locks: Path, *, wait_seconds: float) -> Iterator[str | None]:
    """Hold one free device for the block; yields the GPU's UUID, or None for the CPU.

    UUIDs, since nvidia-smi and CUDA may number the same GPUs differently.

    The lock belongs to the process: the kernel releases it also when the process is killed. Raises NoDevice when none
    gets free within `wait_seconds`.
    """
    locks.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_seconds
    while True:
        for index, problem in _candidates(device):
            lock = None if problem else _try_lock(locks / f"{device}-{index or 0}.lock")
            if lock is not None:
                try:
                    yield index
                finally:
                    os.close(lock)
                return
        if time.monotonic() >= deadline:
            reasons = "; ".join(problem or "busy with another run" for _, problem in _candidates(device))
            raise NoDevice(reasons or f"no {device} device is visible")
        time.sleep(1.0)


def _candidates(device: Device) -> list[tuple[str | None, str]]:
    """(GPU's UUID or None, why it cannot be used or "")."""
    if device == "cpu":
        free = cpu_bytes_free()
        short = (
            ""
            if free >= LEAST_CPU_BYTES
            else f"{free // MIB} MiB of memory available, {LEAST_CPU_BYTES // MIB} needed"
        )
        return [(None, short)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = parse_gpus(_nvidia_smi())
    if visible is not None:
        gpus = [gpu for gpu in gpus if {gpu.index, gpu.uuid} & set(visible.split(","))]
    return [
        (gpu.uuid, "" if gpu.free else f"GPU {gpu.index}: {gpu.used_bytes // MIB} MiB in use") for gpu in gpus
    ]


def available_cpu_bytes(meminfo: str) -> int:
    """`MemAvailable` of /proc/meminfo, in bytes."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ValueError("no MemAvailable line")


def parse_gpus(text: str) -> list[Gpu]:
    """Read `nvidia-smi --query-gpu=index,uuid,name,memory.used,memory.total --format=csv,noheader,nounits` (MiB)."""
    gpus = []
    for line in text.splitlines():
        index, uuid, name, used, total = (part.strip() for part in line.split(","))
        gpus.append(
            Gpu(index=index, uuid=uuid, name=name, used_bytes=int(used) * MIB, total_bytes=int(total) * MIB)
        )
    return gpus


def _nvidia_smi() -> str:
    query = [
        "nvidia-smi",
        "--query-gpu=index,uuid,name,memory.used,memory.total",
        "--format=csv,noheader,nounits",
    ]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise NoDevice(f"nvidia-smi: {error}") from error


def _try_lock(path: Path) -> int | None:
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
