"""The product as a user meets it: the embedded stack, real PostgreSQL, real Celery, real vLLM, a real model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gatekeeper.embedded.bundled_model import directory, is_built
from gatekeeper.marked import marked_processes
from workers.engines.vllm_cpu import vector_extensions
from workers.supervisor import MARKER

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1000)]

HOME = Path(os.environ.get("GATEKEEPER_HOME", ".gatekeeper")).absolute()
PATIENCE_SECONDS = 900
"""Three launches on two slow cores take a third of it."""

TINY_SUITE = """
name: tiny
description: Eight documents, for what happens around measuring.
probes:
  - {probe: capacity}
  - {probe: fidelity, documents: 8, context_tokens: 384, decode_tokens: 32}
"""
SMALL_SUITE = """
name: small
description: Fidelity, accuracy and speed, with few items.
probes:
  - {probe: capacity}
  - {probe: fidelity, documents: 8, context_tokens: 384, decode_tokens: 32}
  - {probe: accuracy, tasks: [gk_recall], items_per_task: 8, seed: 1, expected_items: {gk_recall: 120}}
  - {probe: performance, prompts: 4, input_tokens: 64, output_tokens: 16, rounds: 3, seed: 1}
"""
WINDOW = """
name: window
model: smollm2-135m
candidate:
  eviction: {policy: sliding_window, window: 64}
suite: small
policy: tiny
"""
TINY_POLICY = """
name: tiny
rules:
  - {metric: decode_kl, at_most: 0.05, reason: a change of bookkeeping must not change the distribution}
"""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A running embedded stack."""

    home: Path
    environment: Mapping[str, str]
    api: httpx.Client

    def submit(self, name: str, candidate: Mapping[str, object]) -> str:
        change = {
            "name": name,
            "model": "smollm2-135m",
            "candidate": candidate,
            "suite": "tiny",
            "policy": "tiny",
        }
        response = self.api.post("/api/v1/runs", json=change)
        assert response.status_code == 202, response.text
        run_id: str = response.json()["run_id"]
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        document: dict[str, Any] = self.api.get(f"/api/v1/runs/{run_id}").json()
        return document

    def wait(
        self, run_id: str, condition: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE_SECONDS
    ) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while not condition(document := self.run(run_id)) and time.monotonic() < deadline:
            time.sleep(0.5)
        if condition(document):
            return document
        pytest.fail(f"still {document['state']} at {document['progress']} after {seconds} s")

    def finished(self, run_id: str) -> dict[str, Any]:
        return self.wait(run_id, lambda document: document["state"] == "finished")


def measuring(document: Mapping[str, Any]) -> bool:
    """True while the candidate's probe is under way."""
    progress = document["progress"] or {}
    return bool(progress.get("arm") == "candidate" and progress.get("stage") == "fidelity")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if not is_built(HOME):
        pytest.skip(f"the bundled model is not under {HOME}; `make test` builds it")
    home = tmp_path_factory.mktemp("stack")
    for name, text in (
        ("suites/tiny", TINY_SUITE),
        ("suites/small", SMALL_SUITE),
        ("policies/tiny", TINY_POLICY),
    ):
        file = home / "catalog" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (home / "models").mkdir()
    (home / "models" / "smollm2-135m").symlink_to(directory(HOME))
    environment = {
        key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "BROKER_URL")
    } | {
        "GATEKEEPER_HOME": str(home),
        "GATEKEEPER_CATALOG_DIR": str(home / "catalog"),
        "GATEKEEPER_LEASE_SECONDS": "15",
        "GATEKEEPER_SWEEP_SECONDS": "1",
    }
    log = (home / "up.log").open("wb")
    command = [sys.executable, "-m", "gatekeeper.cli", "up"]
    with (
        log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as up,
    ):
        try:
            url = _service_url(home, up)
            with httpx.Client(base_url=url, timeout=60) as api:
                yield Stack(home=home, environment=environment, api=api)
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(90)
    assert engines_of(home) == {}


def _service_url(home: Path, up: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and up.poll() is None:
        if (home / "service.json").exists():
            url: str = json.loads((home / "service.json").read_text(encoding="utf-8"))["url"]
            return url
        time.sleep(0.2)
    pytest.fail((home / "up.log").read_text(encoding="utf-8"))


def engines_of(home: Path) -> dict[int, str]:
    """Pid and command line of every process that a worker of this stack launched."""
    launched = marked_processes(MARKER, "")
    return {
        pid: command
        for pid, command in marked_processes("GATEKEEPER_HOME", str(home)).items()
        if pid in launched
    }


def workers_of(home: Path) -> list[int]:
    """The processes of this stack's Celery worker."""
    launched = marked_processes(MARKER, "")
    members = marked_processes("GATEKEEPER_HOME", str(home))
    return [pid for pid, command in members.items() if "celery" in command and pid not in launched]


def test_a_window_too_short_fails_with_the_figures_of_this_engine(stack: Stack, tmp_path: Path) -> None:
    """Fidelity, accuracy and speed with few items, of a change that every processor can run."""
    change = tmp_path / "window.yaml"
    change.write_text(WINDOW)
    command = [sys.executable, "-m", "gatekeeper.cli", "gate", str(change), "--format", "json"]
    done = subprocess.run(
        command, check=False, env=stack.environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 1, done.stdout[:2000] + done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert set(report) >= {
        *("run_id", "verdict", "sentence", "findings", "deltas", "noise", "requested", "effective", "engine")
    }
    deltas = {delta["metric"]: delta for delta in report["deltas"] if delta["group"] == "all"}
    assert 0.1 < deltas["decode_kl"]["lower"] < deltas["decode_kl"]["upper"]
    assert {"accuracy", "kv_capacity_ratio", "throughput_ratio"} <= set(deltas)
    assert 0.0 <= report["noise"]["decode_kl"] < 0.005
    assert report["effective"]["candidate"]["sliding_window"] == 64


def test_fp8_is_stored_and_judged_or_refused_with_the_processors_lack(stack: Stack) -> None:
    report = stack.finished(stack.submit("fp8", {"quantization": {"scheme": "fp8_e5m2"}}))
    if "avx512f" not in vector_extensions():
        assert report["verdict"] == "INVALID"
        assert "AVX-512" in report["sentence"]
        return
    deltas = {delta["metric"]: delta for delta in report["deltas"] if delta["group"] == "all"}
    assert deltas["decode_kl"]["estimate"] > 0.02
    assert report["effective"]["candidate"]["cache_dtype"] == "fp8_e5m2"


def test_prefix_caching_passes_with_its_warm_cache_exercised(stack: Stack) -> None:
    report = stack.finished(stack.submit("prefix caching", {"reuse": {"prefix_caching": True}}))
    assert report["verdict"] == "PASS", report["sentence"]
    assert {(finding["mode"], finding["outcome"]) for finding in report["findings"]} == {
        ("cold", "Passed"),
        ("warm", "Passed"),
    }


def test_a_setting_that_the_engine_refuses_is_invalid_with_its_own_words(stack: Stack) -> None:
    report = stack.finished(stack.submit("odd blocks", {"scheduling": {"block_size": 5}}))
    assert report["verdict"] == "INVALID"
    assert "No common block size for 5" in report["sentence"]


def test_an_engine_killed_while_measuring_is_an_error_that_a_retry_gets_past(stack: Stack) -> None:
    run_id = stack.submit("killed engine", {"scheduling": {"block_size": 64}})
    stack.wait(run_id, measuring)
    for pid, command in engines_of(stack.home).items():
        if "api_server" in command and "supervisor" not in command:
            os.kill(pid, signal.SIGKILL)
    report = stack.finished(run_id)
    assert report["verdict"] == "ERROR", report["sentence"]
    assert "retry" in report["sentence"]
    assert engines_of(stack.home) == {}
    assert stack.api.post(f"/api/v1/runs/{run_id}/retry").status_code == 202
    assert stack.finished(run_id)["verdict"] == "PASS"


def test_a_worker_killed_while_measuring_is_relieved_after_its_lease(stack: Stack) -> None:
    run_id = stack.submit("killed worker", {"scheduling": {"block_size": 32}})
    stack.wait(run_id, measuring)
    engines = engines_of(stack.home)
    for pid in workers_of(stack.home):
        os.kill(pid, signal.SIGKILL)
    taken_over = stack.wait(
        run_id, lambda document: document["attempt"] > 1 and document["state"] == "running"
    )
    assert not set(engines) & set(engines_of(stack.home))
    report = stack.finished(taken_over["run_id"])
    assert report["verdict"] == "PASS", report["sentence"]
    assert engines_of(stack.home) == {}


def test_a_cancelled_run_frees_its_engine_at_once(stack: Stack) -> None:
    run_id = stack.submit("cancelled", {"scheduling": {"block_size": 96}})
    stack.wait(run_id, lambda document: document["state"] == "running" and bool(engines_of(stack.home)))
    assert stack.api.post(f"/api/v1/runs/{run_id}/cancel").status_code == 202
    stack.wait(run_id, lambda document: document["state"] == "cancelled", seconds=180)
    assert engines_of(stack.home) == {}
