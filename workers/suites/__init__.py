"""Suites: plain HTTP clients of an engine. A probe yields measurements keyed by item id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import assert_never

from gatekeeper import tracing
from gatekeeper.domain.free_decode import FreeDecodeProbe
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.probes import (
    AccuracyProbe,
    CapacityProbe,
    FidelityProbe,
    ModesProbe,
    Probe,
    RetrievalProbe,
    SaturatedProbe,
)
from gatekeeper.domain.speed_probe import PerformanceProbe
from workers.engines.errors import Unsupported
from workers.engines.process import Supervised
from workers.suites import accuracy, fidelity, free_decode, modes, operator_tasks, performance, saturated
from workers.suites.base import Bench
from workers.suites.context import retrieval


def started_ahead(
    probes: Sequence[Probe], plan: ArmPlan, *, run_id: str, workdir: Path
) -> AbstractContextManager[Supervised | None]:
    """Start the program of the probe that has a slow one, beside an engine, which hardly uses more than a core then."""
    probe = next((probe for probe in probes if isinstance(probe, AccuracyProbe)), None)
    return nullcontext() if probe is None else accuracy.program(probe, plan, run_id=run_id, workdir=workdir)


def run_probe(probe: Probe, bench: Bench) -> None:
    """Run one probe against a ready engine, storing what it measures as it comes.

    An engine that does not offer what the probe needs leaves it out, which its rules call not exercised.
    """
    try:
        with tracing.span("probe", run_id=bench.run_id, probe=probe.probe):
            _run(probe, bench)
    except Unsupported as error:
        bench.sink.skipped(probe.probe, error.detail)


def _run(probe: Probe, bench: Bench) -> None:
    match probe:
        case AccuracyProbe():
            accuracy.run(probe, bench)
        case FidelityProbe():
            fidelity.run(probe, bench)
        case ModesProbe():
            modes.run(probe, bench)
        case FreeDecodeProbe():
            free_decode.run(probe, bench)
        case RetrievalProbe():
            retrieval.run(probe, bench)
        case PerformanceProbe():
            performance.run(probe, bench)
        case SaturatedProbe():
            saturated.run(probe, bench)
        case CapacityProbe():
            bench.advance(
                1, 1
            )  # the pool's size is part of the effective configuration, which is already stored
        case _:
            assert_never(probe)


def data_files(tasks_dir: Path | None) -> Iterator[tuple[str, bytes]]:
    """Name and content of every text and task file that probes can draw on, in a fixed order."""
    here = files("workers.suites")
    yield from _walk(here / "texts", "texts")
    yield from _walk(here / "tasks", "tasks")
    if tasks_dir is not None:
        yield from ((f"operator/{name}", content) for name, content in operator_tasks.read_files(tasks_dir))


def code_files() -> Iterator[tuple[str, bytes]]:
    """Name and content of the modules that launch engines and measure."""
    for package in (
        "workers.engines",
        "workers.engines.llama_cpp",
        "workers.engines.reference",
        "workers.suites",
        "workers.suites.context",
    ):
        for entry in sorted(files(package).iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                yield f"{package}/{entry.name}", entry.read_bytes()


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _walk(entry, f"{prefix}/{entry.name}")
        elif entry.is_file() and not entry.name.endswith(".pyc"):
            yield f"{prefix}/{entry.name}", entry.read_bytes()
