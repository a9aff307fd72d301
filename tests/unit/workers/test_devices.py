"""Which device is free, from text that nvidia-smi prints, and one job per device."""

from pathlib import Path

import pytest

from workers import devices
from workers.devices import NoDevice, available_cpu_bytes, parse_gpus, reserve

TWO_GPUS = "0, GPU-aa, NVIDIA H200, 71000, 143771\n1, GPU-bb, NVIDIA H200, 4, 143771\n"


def test_a_gpu_with_somebody_elses_memory_is_not_free() -> None:
    busy, free = parse_gpus(TWO_GPUS)
    assert (busy.free, free.free) == (False, True)
    assert free.total_bytes == 143_771 * 2**20


def test_the_free_visible_gpu_is_taken_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "_nvidia_smi", lambda: TWO_GPUS)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with reserve("cuda", tmp_path, wait_seconds=0) as index:
        assert index == "GPU-bb"
        with (
            pytest.raises(NoDevice, match="71000 MiB in use; busy with another run"),
            reserve("cuda", tmp_path, wait_seconds=0),
        ):
            pass
    with reserve("cuda", tmp_path, wait_seconds=0) as again:
        assert again == "GPU-bb"


def test_a_gpu_outside_cuda_visible_devices_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(devices, "_nvidia_smi", lambda: TWO_GPUS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(NoDevice, match="GPU 0"), reserve("cuda", tmp_path, wait_seconds=0):
        pass


def test_a_machine_without_nvidia_smi_has_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(NoDevice, match="nvidia-smi"),
        reserve("cuda", tmp_path, wait_seconds=0),
    ):
        pass


def test_available_memory_is_read_in_bytes() -> None:
    assert available_cpu_bytes("MemTotal: 9 kB\nMemAvailable:   1024 kB\n") == 1_048_576
