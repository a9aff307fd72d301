"""A whole run over real subprocesses and real HTTP, with a fake engine behind them."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gatekeeper.domain.judge import judge
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.probes import AccuracyProbe
from gatekeeper.domain.speed import COMPANION
from gatekeeper.domain.speed_probe import PerformanceProbe, Turns
from gatekeeper.domain.verdict import Report, Verdict
from gatekeeper.marked import marked_processes
from tests.fakes.engine import FakeEngine, MemoryRun, fake_plan
from workers import engines
from workers.engines.base import Server
from workers.engines.errors import RunCancelled
from workers.engines.process import start
from workers.execute import Bounds, Job, execute
from workers.suites import turns
from workers.supervisor import MARKER, end_marked


@pytest.fixture
def run_id() -> str:
    return uuid.uuid4().hex


def run(
    monkeypatch: pytest.MonkeyPatch,
    run_id: str,
    engine: FakeEngine,
    *,
    recorder: MemoryRun | None = None,
    check: Callable[[], None] = lambda: None,
    stall_seconds: float = 20.0,
    dead: frozenset[str] = frozenset(),
) -> tuple[MemoryRun, Report]:
    monkeypatch.setattr(engines, "ENGINES", {"vllm": engine})
    recorder, plan = recorder or MemoryRun(), fake_plan()
    bounds = Bounds(start_seconds=60, stall_seconds=stall_seconds, tasks_dir=None, gpu=None, check=check)
    execute(Job(run_id=run_id, plan=plan, dead_roles=dead), recorder, bounds)  # type: ignore[arg-type]
    assert marked_processes(MARKER, run_id) == {}
    return recorder, judge(plan, recorder.records)


def test_an_undamaged_candidate_passes_with_doubled_capacity(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    recorder, report = run(monkeypatch, run_id, FakeEngine())
    assert report.verdict is Verdict.PASS, report.sentence
    assert list(recorder.arms) == ["baseline", "control", "candidate"]
    assert "KV capacity 2.00x" in report.sentence
    assert report.noise.decode_kl == 0.0


def test_a_damaged_candidate_fails_and_the_sentence_says_by_how_much(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    _, report = run(monkeypatch, run_id, FakeEngine(candidate_flags=["--shift", "1.0"]))
    assert report.verdict is Verdict.FAIL
    assert report.sentence.startswith("FAIL: decode KL 0.")
    assert "exceeds 0.050 nats/token" in report.sentence


def test_a_stored_baseline_is_used_again(monkeypatch: pytest.MonkeyPatch, run_id: str) -> None:
    first, _ = run(monkeypatch, run_id, FakeEngine())
    second = MemoryRun(kept=first.kept)
    monkeypatch.setattr(engines, "ENGINES", {"vllm": FakeEngine()})
    bounds = Bounds(start_seconds=60, stall_seconds=20, tasks_dir=None, gpu=None, check=lambda: None)
    execute(Job(run_id=run_id, plan=fake_plan(), dead_roles=frozenset()), second, bounds)
    assert list(second.arms) == ["candidate"]


def test_a_suite_that_may_stop_early_leaves_out_what_can_no_longer_change_the_verdict(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    measured, _ = run(monkeypatch, run_id, FakeEngine())
    plan = fake_plan()
    speed = PerformanceProbe(probe="performance", prompts=1, input_tokens=8, output_tokens=8, rounds=2)
    suite = plan.suite.model_copy(update={"probes": (*plan.suite.probes, speed), "stop_early": True})
    longer = plan.model_copy(update={"suite": suite})
    recorder = MemoryRun(plan=longer, arms={role: measured.arms[role] for role in ("baseline", "control")})
    recorder.reuse_baseline = lambda _fingerprint: True  # type: ignore[method-assign,assignment]
    monkeypatch.setattr(engines, "ENGINES", {"vllm": FakeEngine(candidate_flags=["--shift", "1.0"])})
    bounds = Bounds(start_seconds=60, stall_seconds=20, tasks_dir=None, gpu=None, check=lambda: None)
    execute(Job(run_id=run_id, plan=longer, dead_roles=frozenset()), recorder, bounds)
    report = judge(longer, recorder.records)
    assert report.verdict is Verdict.FAIL
    assert [probe for probe, _ in recorder.arms["candidate"].left_out] == ["performance"]
    assert "performance did not run: not needed, the verdict was certain: decode_kl" in report.notes[0]


@pytest.mark.parametrize(
    ("shift", "verdict", "reason"),
    [
        (0.0, Verdict.PASS, "all blocking rules on it passed"),
        (1.0, Verdict.FAIL, "the verdict was certain: decode_kl"),
    ],
)
def test_a_probe_in_batches_ends_after_the_one_that_settles_it(
    monkeypatch: pytest.MonkeyPatch, run_id: str, shift: float, verdict: Verdict, reason: str
) -> None:
    plan = fake_plan()
    (capacity, fidelity) = plan.suite.probes
    in_batches = fidelity.model_copy(update={"documents": 32, "batches": 4})
    suite = plan.suite.model_copy(update={"probes": (capacity, in_batches), "stop_early": True})
    longer = plan.model_copy(update={"suite": suite})
    recorder = MemoryRun(plan=longer)
    monkeypatch.setattr(engines, "ENGINES", {"vllm": FakeEngine(candidate_flags=["--shift", str(shift)])})
    bounds = Bounds(start_seconds=60, stall_seconds=20, tasks_dir=None, gpu=None, check=lambda: None)
    execute(Job(run_id=run_id, plan=longer, dead_roles=frozenset()), recorder, bounds)
    report = judge(longer, recorder.records)
    assert report.verdict is verdict
    scored = {role: len(arm.scored) for role, arm in recorder.arms.items()}
    assert scored["baseline"] == scored["control"] == 32
    assert (
        scored["candidate"] >= 16
    )  # those of the next batch that came before the last ones of this are there too
    assert sum(trace.batch < 2 for trace in recorder.arms["candidate"].scored) == 16
    assert report.notes[0].startswith(f"fidelity (cold) was ended after batch 2: {reason}")


class PacedGenerator:
    """Stands for vLLM's benchmark: asks the engine itself, and reports the pace set for its kind of cache."""

    def __init__(self, paces: dict[str, float]) -> None:
        self._paces, self.loads = paces, 0

    def send(self, server: Server, _arguments: Sequence[str], **_seen: object) -> dict[str, object]:
        server.post("/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 1})
        self.loads += 1
        pace = self._paces[server.effective.cache_dtype or ""] * (1 + 0.002 * (self.loads % 3))
        latencies = {f"p{p}_{name}_ms": 1000 / pace for p in (50, 90, 99) for name in ("ttft", "itl", "e2el")}
        return {
            "output_lens": [8, 8], "duration": 1.0, "output_throughput": pace, "request_goodput": None, **latencies
        }  # fmt: skip


@pytest.mark.parametrize(("pace", "verdict"), [(101.0, Verdict.PASS), (70.0, Verdict.FAIL)])
def test_speed_is_measured_in_turns_with_launches_of_the_baseline(
    monkeypatch: pytest.MonkeyPatch, run_id: str, pace: float, verdict: Verdict
) -> None:
    generator = PacedGenerator({"auto": 100.0, "fp8_e4m3": pace})
    monkeypatch.setattr(turns, "load_generator", lambda *_, **__: contextlib.nullcontext(generator))
    monkeypatch.setattr(engines, "ENGINES", {"vllm": FakeEngine()})
    probe = PerformanceProbe(
        probe="performance", prompts=2, input_tokens=8, output_tokens=8, rounds=2, turns=Turns(launches=2)
    )
    rules = [{"metric": "throughput_ratio", "at_least": 0.9, "reason": "a test"}]
    plan = fake_plan()
    suite = plan.suite.model_copy(update={"probes": (probe, *plan.suite.probes)})
    policy = Policy.model_validate(plan.policy.model_dump() | {"rules": [*plan.policy.rules, *rules]})
    plan = plan.model_copy(update={"suite": suite, "policy": policy})
    recorder = MemoryRun(plan=plan)
    bounds = Bounds(start_seconds=60, stall_seconds=20, tasks_dir=None, gpu=None, check=lambda: None)
    execute(Job(run_id=run_id, plan=plan, dead_roles=frozenset()), recorder, bounds)
    report = judge(plan, recorder.records)
    assert report.verdict is verdict, report.sentence
    launches = {
        role: {row.cluster for row in arm.rows if row.suite == COMPANION}
        for role, arm in recorder.arms.items()
    }
    assert launches == {"baseline": set(), "control": {"launch-1", "launch-2"}, "candidate": {"launch-1"}}
    assert {"companion-launch-1.log", "arm-launch-1.log"} <= set(recorder.arms["candidate"].artifacts)
    assert marked_processes(MARKER, run_id) == {}


def test_a_setting_that_the_engine_ignores_is_invalid_and_no_suite_runs(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    recorder, report = run(monkeypatch, run_id, FakeEngine(candidate_flags=["--dtype", "auto"]))
    assert report.verdict is Verdict.INVALID
    assert "requested fp8_e4m3, effective auto" in report.sentence
    assert recorder.arms["candidate"].scored == []


def test_scales_that_the_engine_came_to_by_itself_are_invalid(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    recorder, report = run(monkeypatch, run_id, FakeEngine(candidate_flags=["--scale", "0.05"]))
    assert report.verdict is Verdict.INVALID
    assert "quantization.scales: requested unit (1.0), effective 0.05 to 0.05" in report.sentence
    assert recorder.arms["candidate"].scored == []


def test_prefix_caching_that_cannot_be_switched_off_is_an_unsound_baseline(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    recorder, report = run(monkeypatch, run_id, FakeEngine(baseline_flags=["--prefix-caching", "True"]))
    assert report.verdict is Verdict.INVALID
    assert "baseline is unsound: prefix_caching: requested off, effective on" in report.sentence
    assert list(recorder.arms) == ["baseline"]


def test_a_candidate_that_will_not_start_is_invalid_with_the_engines_own_reason(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    recorder, report = run(monkeypatch, run_id, FakeEngine(candidate_flags=["--refuse"]))
    assert report.verdict is Verdict.INVALID
    assert "ValueError: KV cache dtype int3 is not supported" in report.sentence
    assert "Traceback" in recorder.arms["candidate"].artifacts["engine.log"]


def test_a_candidate_that_dies_is_an_error_first_and_a_failure_when_it_dies_again(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    engine = FakeEngine(candidate_flags=["--die-after", "3"])
    _, once = run(monkeypatch, run_id, engine)
    _, again = run(monkeypatch, run_id, engine, dead=frozenset({"candidate"}))
    assert (once.verdict, again.verdict) == (Verdict.ERROR, Verdict.FAIL)
    assert "exit status 3" in once.sentence


def test_a_candidate_that_stops_answering_meets_its_deadline(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    recorder, report = run(
        monkeypatch, run_id, FakeEngine(candidate_flags=["--stall-after", "3"]), stall_seconds=2
    )
    failure = recorder.arms["candidate"].failure
    assert failure is not None
    assert failure.kind == "stalled"
    assert report.verdict is Verdict.ERROR


def test_a_baseline_that_will_not_start_speaks_of_nothing(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    recorder, report = run(monkeypatch, run_id, FakeEngine(baseline_flags=["--refuse"]))
    assert report.verdict is Verdict.INVALID
    assert list(recorder.arms) == ["baseline"]


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        (["--refuse"], "refused"),
        (["--die-after", "3"], "died"),
        (["--dtype", "fp8_e4m3"], None),
        ([], "infrastructure"),
    ],
)
def test_lm_eval_which_starts_beside_the_engine_outlives_no_arm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_id: str, flags: list[str], kind: str | None
) -> None:
    (tmp_path / "own.yaml").write_text("task: gk_facts\n", encoding="utf-8")  # a bundled one's name
    accuracy = AccuracyProbe(probe="accuracy", tasks=("own_task",))
    plan = fake_plan()
    suite = plan.suite.model_copy(update={"probes": (*plan.suite.probes, accuracy)})
    plan, recorder = plan.model_copy(update={"suite": suite}), MemoryRun()
    monkeypatch.setattr(engines, "ENGINES", {"vllm": FakeEngine(baseline_flags=flags)})
    bounds = Bounds(start_seconds=60, stall_seconds=20, tasks_dir=tmp_path, gpu=None, check=lambda: None)
    execute(Job(run_id=run_id, plan=plan, dead_roles=frozenset()), recorder, bounds)
    failure = recorder.arms["baseline"].failure
    assert (failure.kind if failure else None) == kind
    assert marked_processes(MARKER, run_id) == {}


def test_cancellation_stops_the_engine_between_two_requests(
    monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    recorder = MemoryRun()

    def check() -> None:
        if ("fidelity", "baseline") in {stage[:2] for stage in recorder.stages}:
            raise RunCancelled

    with pytest.raises(RunCancelled):
        run(monkeypatch, run_id, FakeEngine(), recorder=recorder, check=check)
    assert marked_processes(MARKER, run_id) == {}


def test_a_worker_killed_with_sigkill_leaves_no_engine_behind(tmp_path: Path, run_id: str) -> None:
    script = (
        "import sys, time; from pathlib import Path; from workers.engines.process import start\n"
        f"start([sys.executable, '-c', 'import time; time.sleep(600)'], run_id={run_id!r}, "
        f"log=Path({str(tmp_path / 'log')!r}), environment={{}}); print('up', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"up\n"
        assert _eventually(lambda: len(marked_processes(MARKER, run_id)) == 2)
        worker.kill()
    assert _eventually(lambda: marked_processes(MARKER, run_id) == {})


def test_a_stubborn_process_and_its_daemons_are_ended(tmp_path: Path, run_id: str) -> None:
    stubborn = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n    os.setsid()\ntime.sleep(600)"
    )
    process = start([sys.executable, "-c", stubborn], run_id=run_id, log=tmp_path / "log", environment={})
    assert _eventually(lambda: len(marked_processes(MARKER, run_id)) == 3)
    os.kill(process.supervisor.pid, signal.SIGKILL)
    process.stop()
    assert end_marked(f"{run_id}:", patience=0.5) == []


def test_an_engine_is_not_told_of_the_workers_collector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_id: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:4318/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
    tell = [
        sys.executable,
        "-c",
        "import os; print([name for name in os.environ if name.startswith('OTEL')])",
    ]
    process = start(tell, run_id=run_id, log=tmp_path / "log", environment={})
    assert process.wait(20)
    process.stop()
    assert (tmp_path / "log").read_text().strip() == "[]"


def _eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        threading.Event().wait(0.1)
    return False
