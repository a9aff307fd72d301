"""One run from plan to stored measurements: engines x suites. Knows nothing of Celery or the database."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from gatekeeper import tracing
from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.engine_choice import left_out
from gatekeeper.domain.measurement import EffectiveConfig, Mode, Role
from gatekeeper.domain.plan import ArmPlan, Plan, cache_modes, measured_modes
from gatekeeper.domain.probe_order import in_order
from gatekeeper.domain.probes import Probe, SaturatedProbe
from gatekeeper.domain.run import ArmFailure
from gatekeeper.domain.verdict import EngineInfo
from workers.devices import cpu_bytes_free, fit_together
from workers.engines import choose
from workers.engines.base import Server, launch
from workers.engines.errors import EngineFailure, EngineRefused, ProbeFailed
from workers.engines.process import Supervised, read_log
from workers.suites import code_files, data_files, run_probe, started_ahead
from workers.suites.base import Bench, Sink
from workers.suites.turns import Table, take_turns


class ArmRecorder(Sink, Protocol):
    """Where one arm's results go."""

    def started(self, info: EngineInfo, effective: EffectiveConfig) -> None:
        """The engine is ready."""
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

    def references(self, mode: Mode) -> Mapping[str, Sequence[int]]:
        """By item, the tokens that the run's baseline scored in a mode."""
        ...

    def speed_decided(self) -> bool:
        """Whether every rule on speed is decided with the pairs of launches so far."""
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
    """Measure the arms of a run, the baseline only where no stored one fits: one of the same probes in the same order.

    A failing engine is recorded, never raised. Raises RunCancelled or LeaseLost as soon as `bounds.check` does.
    """
    suite = job.plan.suite.model_copy(update={"probes": in_order(job.plan)})
    job = replace(job, plan=job.plan.model_copy(update={"suite": suite}))
    plan = job.plan
    info = choose(plan.baseline).info(plan.baseline, gpu=bounds.gpu)
    fingerprint = plan.baseline.fingerprint(
        suite=plan.suite,
        deployment=plan.change.deployment,
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


@dataclass(frozen=True, kw_only=True)
class _Arm:
    """One arm under way: where its results go, and what its engines and probes share."""

    job: Job
    role: Role
    plan: ArmPlan
    sink: ArmRecorder
    recorder: Recorder
    bounds: Bounds
    workdir: Path

    @property
    def stops_early(self) -> bool:
        """Baseline and control are measured to their end: other candidates will be held against them."""
        return self.job.plan.suite.stop_early and self.role == "candidate"

    def engine(self, plan: ArmPlan, log: str) -> AbstractContextManager[Server]:
        """Launch an engine with a log of its own."""
        return launch(
            choose(plan), plan, run_id=self.job.run_id, log=self.workdir / f"{log}.log", gpu=self.bounds.gpu,
            start_seconds=self.bounds.start_seconds, stall_seconds=self.bounds.stall_seconds,
            check=self.bounds.check,
        )  # fmt: skip

    def bench(self, server: Server, probe: Probe, lm_eval: Supervised | None = None) -> Bench:
        """What a probe works with."""
        is_baseline = self.role == "baseline"
        return Bench(
            server=server, sink=self.sink, run_id=self.job.run_id, workdir=self.workdir,
            deployment=self.job.plan.change.deployment, modes=self._modes(server), tasks_dir=self.bounds.tasks_dir,
            advance=partial(self.recorder.progress, probe.probe, self.role),
            settled=self.recorder.settled if self.stops_early else _never_settled,
            references=_none if is_baseline else self.recorder.references,
            lm_eval=lm_eval,
        )  # fmt: skip

    def _modes(self, server: Server) -> tuple[Mode, ...]:
        """A baseline is measured in every mode of the suite, since other candidates will be held against it."""
        suite, config = self.job.plan.suite, server.plan.config
        if self.role == "candidate":
            return measured_modes(suite, config, server.effective)
        return (*cache_modes(config, server.effective), *suite.modes)


def measure_arm(job: Job, role: Role, recorder: Recorder, bounds: Bounds, fingerprint: str | None) -> bool:
    """Launch one arm and run its suite; say whether it got to the end."""
    plan = job.plan.candidate if role == "candidate" else job.plan.baseline
    engine = choose(plan)
    sink = recorder.open_arm(role, plan, engine.argv(plan, port=0), fingerprint)
    recorder.progress("launch", role, 0, 1)
    with tracing.span("arm", run_id=job.run_id, role=role), _workdir(sink) as workdir:
        arm = _Arm(
            job=job, role=role, plan=plan, sink=sink, recorder=recorder, bounds=bounds, workdir=workdir
        )
        try:
            with (
                started_ahead(job.plan.suite.probes, plan, run_id=job.run_id, workdir=workdir) as lm_eval,
                arm.engine(plan, "engine") as server,
            ):
                sink.started(engine.info(plan, gpu=bounds.gpu), server.effective)
                applied = not mismatches(compare(plan, server.effective))
                certain = _run_probes(arm, server, lm_eval) if applied else None
            if applied:
                _run_saturated(arm, server.effective, certain)
                _take_turns(arm, server.effective, certain)
        except (EngineFailure, ProbeFailed) as error:
            tracing.note(failure=error.detail)
            sink.finished(complete=False, failure=_failure(error, role, job.dead_roles))
            return False
    sink.finished(complete=applied, failure=None)
    return applied


def _run_probes(arm: _Arm, server: Server, lm_eval: Supervised | None) -> str | None:
    """Run what the arm's own engine is asked; return why the verdict is certain, as soon as it is."""
    certain = None
    for probe in arm.job.plan.suite.probes:
        if isinstance(probe, SaturatedProbe) or arm.job.plan.suite.is_in_turns(probe):
            continue
        if _is_left_out(arm, probe, certain):
            continue
        run_probe(probe, arm.bench(server, probe, lm_eval))
        if arm.stops_early:
            certain = arm.recorder.certain_failure()
    return certain


def _run_saturated(arm: _Arm, effective: EffectiveConfig, certain: str | None) -> None:
    """Run what needs an engine with a small pool. One that will not start so leaves the rest of the arm standing."""
    for probe in arm.job.plan.suite.probes:
        if not isinstance(probe, SaturatedProbe):
            continue
        if _is_left_out(arm, probe, certain):
            continue
        if effective.block_size is None:
            arm.sink.skipped(probe.probe, "the engine does not say how large its cache blocks are")
        else:
            _run_in_small_pool(arm, probe, arm.plan.saturated_by(probe, block_size=effective.block_size))


def _is_left_out(arm: _Arm, probe: Probe, certain: str | None) -> bool:
    """Say why a probe is left out, if it is: the engine proves nothing by it, or the verdict is certain without it."""
    reason = left_out(arm.plan.engine, suite=probe.probe, mode=probe.probe)
    if reason is None and certain is not None:
        reason = f"not needed, the verdict was certain: {certain}"
    if reason is not None:
        arm.sink.skipped(probe.probe, reason)
    return reason is not None


def _run_in_small_pool(arm: _Arm, probe: SaturatedProbe, plan: ArmPlan) -> None:
    arm.recorder.progress("launch", arm.role, 0, 1)
    try:
        with arm.engine(plan, "engine-saturated") as server:
            unlike = mismatches(compare(plan, server.effective))
            if unlike:
                arm.sink.skipped(probe.probe, unlike[0].sentence)
            else:
                run_probe(probe, arm.bench(server, probe))
    except EngineRefused as error:
        arm.sink.skipped(probe.probe, f"the engine refused the small pool: {error.detail}")


def _take_turns(arm: _Arm, effective: EffectiveConfig, certain: str | None) -> None:
    """Measure speed in turns with the baseline's configuration, where the suite says so, after all other probes.

    The baseline needs no rounds of its own: the control's show the noise of its configuration.
    """
    plan, probe, is_candidate = arm.job.plan, arm.job.plan.suite.speed, arm.role == "candidate"
    if probe is None or probe.turns is None or arm.role == "baseline":
        return
    if _is_left_out(arm, probe, certain):
        return
    table = Table(
        plans={"arm": arm.plan, "companion": plan.baseline}, deployment=plan.change.deployment,
        modes=cache_modes(arm.plan.config, effective),
        together=fit_together([arm.plan, plan.baseline], cpu_bytes_free=cpu_bytes_free()),
        run_id=arm.job.run_id, workdir=arm.workdir, sink=arm.sink,
        environment=choose(arm.plan).environment(arm.plan, gpu=None), launch=arm.engine,
        advance=partial(arm.recorder.progress, probe.probe, arm.role),
        is_decided=arm.recorder.speed_decided if is_candidate else _never_decided,
    )  # fmt: skip
    take_turns(probe, probe.turns, table)


def _never_decided() -> bool:
    """The control shows the noise with all its launches: other candidates will be held against it."""
    return False


def _never_settled(_suite: str, _mode: Mode, _batches: int) -> None:
    """Every probe runs to its end."""


def _none(_mode: Mode) -> Mapping[str, Sequence[int]]:
    """The baseline follows nobody."""
    return {}


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
                if text:
                    arm.artifact(log.name, text, truncated=truncated)
