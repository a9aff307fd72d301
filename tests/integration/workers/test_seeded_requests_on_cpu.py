"""Draws that vLLM's runner throws away while a seeded request's prompt is read in pieces, on torch's CPU generators."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
cpu_model_runner = pytest.importorskip("vllm.v1.worker.cpu_model_runner")

PLACES = 3


def drawn(runner: Any) -> list[float]:
    """One draw from every request's generator, as vLLM's sampler takes it."""
    return [float(torch.rand((), generator=runner.input_batch.generators[place])) for place in range(PLACES)]


def taken_back(runner: Any) -> str:
    """What vLLM's bookkeeping does about draws that do not count."""
    for place in range(PLACES):
        generator = runner.input_batch.generators.get(place)
        if runner.discard_request_mask.np[place] and generator is not None:
            generator.set_offset(generator.get_offset() - 4)
    return "kept"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cpu_model_runner.CPUModelRunner, "_sample", drawn)
    monkeypatch.setattr(cpu_model_runner.CPUModelRunner, "_bookkeeping_sync", taken_back)
    from workers.engines.vllm_cpu_runner import SeededCPUModelRunner

    made = SeededCPUModelRunner.__new__(SeededCPUModelRunner)
    generators = {place: torch.Generator().manual_seed(place) for place in range(PLACES)}
    made.input_batch = SimpleNamespace(generators=generators)
    made.discard_request_mask = SimpleNamespace(np=[False, True, False])
    return made


def test_a_draw_that_does_not_count_is_drawn_again_and_the_others_go_on(runner: Any) -> None:
    generators = runner.input_batch.generators
    first = runner._sample()
    assert runner._bookkeeping_sync() == "kept"
    assert runner.input_batch.generators is generators
    second = runner._sample()
    assert second[1] == first[1]
    assert second[0] != first[0]
    assert second[2] != first[2]


def test_vllm_itself_still_needs_it(runner: Any) -> None:
    with pytest.raises(RuntimeError, match="does not use offset"):
        taken_back(runner)
