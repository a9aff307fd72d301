"""One run from plan to stored measurements: engines x suites. Knows nothing of Celery or the database."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.measurement import EffectiveConfig, Mode, Role
from gatekeeper.domain.plan import ArmPlan, Plan, cache_modes
from gatekeeper.domain.run import ArmFailure
from gatekeeper.domain.verdict import EngineInfo
from workers.engines import choose
from workers.engines.base import Server, launch
from workers.engines.errors import EngineFailure, ProbeFailed
from workers.engines.process import read_log
from workers.suites import code_files, data_files, run_probe
from workers.suites.base import Bench, Sink


class ArmRecorder(Sink, Protocol):
    """Where one arm's results go."""

    def started(self, info: EngineInfo, effective: EffectiveConfig) -> None:
        """The engine is ready."""
        ...

    def skipped(self, probe: str, reason: str) -> None:
        """A probe was left out."""
        ...

    def finished(self, *, complete: bool, failure: ArmFailure | None) -> None:
        """The arm is over."""
        ...

    def artifact(self, name: str, text: str, *, truncated: bool) -> None:
        """Keep a log."""
        ...


class Recorder(Protocol):
    """Where a run's results go. Every method raises LeaseLost once the run belongs to another worker."""

    def reuse_baseline(self, fingerprint: str) -> bool:
        """Take over the stored baseline and control of that fingerprint, if there are any."""
        ...

    def keep_baseline(self, fingerprint: str) -> None:
        """Store this run's baseline and control for later runs."""
        ...

    def open_arm(
        self, role: Role, plan: ArmPlan, argv: Sequence[str], fingerprint: str | None
    ) -> ArmRecorder:
        """Begin an arm."""
        ...

    def certain_failure(self) -> str | None:
        """Why the verdict is sure to be FAIL with what is stored so far, or None while it is not."""
        ...

    def settled(self, suite: str, mode: Mode, batches: int) -> str | None:
        """Why the rest of a probe is not needed in one mode after its first `batches` batches, or None while it is."""
        ...

    def progress(self, stage: str, role: Role, done: int, total: int) -> None:
        """Say how far the run is."""
        ...


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The deadlines and places that an execution works within."""

    start_seconds: float
    stall_seconds: float
    tasks_dir: Path | None
    gpu: str | None
    check: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A claimed run. `dead_roles`: arms whose engine already died or stalled in an earlier attempt."""

    run_id: str
    plan: Plan
    dead_roles: frozenset[Role]


def execute(job: Job, recorder: Recorder, bounds: Bounds) -> None:
    """Measure the arms of a run, the baseline only where no stored one fits.

    A failing engine is recorded, never raised. Raises RunCancelled or LeaseLost as soon as `bounds.check` does.
    """
    plan = job.plan
    info = choose(plan.baseline).info(plan.baseline, gpu=bounds.gpu)
    fingerprint = plan.baseline.fingerprint(
        suite=plan.suite,
        concurrency=plan.concurrency,
        engine_build=info.version,
        hardware=info.hardware,
        worker=worker_fingerprint(plan.baseline.model.source, bounds.tasks_dir),
    )
    if not recorder.reuse_baseline(fingerprint):
        if not measure_arm(job, "baseline", recorder, bounds, fingerprint):
            return
        if measure_arm(job, "control", recorder, bounds, fingerprint):
            recorder.keep_baseline(fingerprint)
    measure_arm(job, "candidate", recorder, bounds, None)


def worker_fingerprint(model_source: str, tasks_dir: Path | None) -> str:
    """The SHA-256 of what decides a measurement on the worker's side.

    That is every text and task that suites can draw on, the measuring code, and a local model's files by name, size
    and time of change (their content would take minutes).
    """
    digest = hashlib.sha256()
    for name, content in (*data_files(tasks_dir), *code_files()):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    for path in sorted(Path(model_source).rglob("*")) if Path(model_source).is_absolute() else ():
        about = path.stat()
        digest.update(f"{path.name}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def measure_arm(job: Job, role: Role, recorder: Recorder, bounds: Bounds, fingerprint: str | None) -> bool:
    """Launch one arm and run its suite; say whether it got to the end."""
    plan = job.plan.candidate if role == "candidate" else job.plan.baseline
    engine = choose(plan)
    arm = recorder.open_arm(role, plan, engine.argv(plan, port=0), fingerprint)
    recorder.progress("launch", role, 0, 1)
    with _workdir(arm) as workdir:
        try:
            with launch(
                engine, plan, run_id=job.run_id, log=workdir / "engine.log", gpu=bounds.gpu,
                start_seconds=bounds.start_seconds, stall_seconds=bounds.stall_seconds, check=bounds.check,
            ) as server:  # fmt: skip
                arm.started(engine.info(plan, gpu=bounds.gpu), server.effective)
                applied = not mismatches(compare(plan, server.effective))
                if applied:
                    _run_suite(job, role, server, arm, recorder, bounds, workdir)
        except (EngineFailure, ProbeFailed) as error:
            arm.finished(complete=False, failure=_failure(error, role, job.dead_roles))
            return False
    arm.finished(complete=applied, failure=None)
    return applied


def _run_suite(
    job: Job, role: Role, server: Server, arm: ArmRecorder, recorder: Recorder, bounds: Bounds, workdir: Path
) -> None:
    suite, certain = job.plan.suite, None
    stops_early = suite.stop_early and role == "candidate"
    for probe in suite.probes:
        if certain is not None:
            arm.skipped(probe.probe, f"not needed, the verdict was certain: {certain}")
            continue
        bench = Bench(
            server=server, sink=arm, run_id=job.run_id, workdir=workdir, concurrency=job.plan.concurrency,
            modes=cache_modes(server.plan.config, server.effective), tasks_dir=bounds.tasks_dir,
            advance=partial(recorder.progress, probe.probe, role),
            settled=recorder.settled if stops_early else _never_settled,
        )  # fmt: skip
        run_probe(probe, bench)
        if stops_early:
            certain = recorder.certain_failure()


def _never_settled(suite: str, mode: Mode, batches: int) -> None:
    """Baseline and control are measured to their end: other candidates will be held against them."""


def _failure(error: EngineFailure | ProbeFailed, role: Role, dead_roles: frozenset[Role]) -> ArmFailure:
    kind = error.kind if isinstance(error, EngineFailure) else "infrastructure"
    return ArmFailure(role=role, kind=kind, cause=error.detail, repeated=role in dead_roles)


@contextmanager
def _workdir(arm: ArmRecorder) -> Iterator[Path]:
    """A directory for the arm's files; its logs are kept as artifacts, whatever happened."""
    with tempfile.TemporaryDirectory(prefix="gatekeeper-") as name:
        workdir = Path(name)
        try:
            yield workdir
        finally:
            for log in sorted(workdir.glob("*.log")):
                text, truncated = read_log(log)
                arm.artifact(log.name, text, truncated=truncated)
