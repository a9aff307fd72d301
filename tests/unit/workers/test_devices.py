"""Which device is free, from text that nvidia-smi prints, and one job per device."""

from pathlib import Path

import pytest

from gatekeeper.domain.plan import ArmPlan
from tests.fakes.engine import fake_plan
from workers import devices
from workers.devices import NoDevice, available_cpu_bytes, fit_together, parse_gpus, reserve

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


def on_gpu(share: float | None) -> ArmPlan:
    plan = fake_plan().baseline
    scheduling = plan.config.scheduling.model_copy(update={"gpu_memory_utilization": share})
    config = plan.config.model_copy(update={"scheduling": scheduling})
    return plan.model_copy(update={"device": "cuda", "config": config})


@pytest.mark.parametrize(
    ("shares", "fit"),
    [((None, None), False), ((0.45, 0.45), True), ((0.48, 0.48), True), ((0.5, 0.5), False), ((0.1, None), False)],
)  # fmt: skip
def test_two_engines_share_a_gpu_only_with_the_shares_that_they_run_with(
    shares: tuple[float | None, float | None], fit: bool
) -> None:
    plans = [on_gpu(share) for share in shares]
    assert fit_together(plans, cpu_bytes_free=0) is fit


def test_two_engines_share_main_memory_if_their_weights_and_pools_fit(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"0" * 1000)
    plan = fake_plan().baseline
    known = plan.model_copy(update={"model": plan.model.model_copy(update={"source": str(tmp_path)})})
    needed = 2 * devices.LEAST_CPU_BYTES + 2000
    assert fit_together([known, known], cpu_bytes_free=needed)
    assert not fit_together([known, known], cpu_bytes_free=needed - 1)
    assert not fit_together([plan, plan], cpu_bytes_free=10 * needed), "the size of its weights is unknown"
