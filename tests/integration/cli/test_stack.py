"""The embedded stack for real: PostgreSQL, API and worker as processes. No engine: on the device `cuda`, which these
machines lack, every run stays queued."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gatekeeper.embedded.processes import wait_until

pytestmark = pytest.mark.timeout(180)
START_S = 60.0
STOP_S = 60.0
CONFIG = {
    "num_attention_heads": 8, "num_hidden_layers": 2, "num_key_value_heads": 4, "head_dim": 16,
    "max_position_embeddings": 2048,
}  # fmt: skip
CHANGE = (
    "name: tiny_fp8\nmodel: tiny\ncandidate: {quantization: {scheme: fp8_e4m3}}\nsuite: smoke\npolicy: fast\n"
)


class Home:
    """One data directory, and the command line in it."""

    def __init__(self, root: Path, **variables: str) -> None:
        self.root = root
        kept = {key: value for key, value in os.environ.items() if not key.startswith("GATEKEEPER_")}
        for name in ("DATABASE_URL", "BROKER_URL"):
            kept.pop(name, None)
        own = {
            "GATEKEEPER_HOME": str(root),
            "GATEKEEPER_DEVICE": "cuda",
            "GATEKEEPER_PORT": str(_free_port()),
        }
        self.environment = kept | own | variables
        self.output = root.with_suffix(".out")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Run a command in the background; what it says goes to `output`."""
        argv = [sys.executable, "-m", "gatekeeper.cli", *words]
        with self.output.open("ab") as output:
            return subprocess.Popen(argv, env=self.environment, stdout=output, stderr=output)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        argv = [sys.executable, "-m", "gatekeeper.cli", *words]
        return subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    def said(self) -> str:
        """What background commands said so far."""
        return self.output.read_text(encoding="utf-8") if self.output.exists() else ""

    def url(self) -> str:
        """Where the stack is, as its file says."""
        return str(json.loads((self.root / "service.json").read_text(encoding="utf-8"))["url"])

    def processes(self, word: str = "") -> dict[int, str]:
        """Processes that know this data directory by their environment, command line or working directory."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                environment = (folder / "environ").read_bytes().split(b"\0")
                mine = f"GATEKEEPER_HOME={self.root}".encode() in environment or str(self.root) in command
            except OSError:
                continue
            if mine and command and word in command:
                found[int(folder.name)] = command
        return found

    @contextmanager
    def up(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A stack that is up; at the end it is stopped with SIGTERM, and nothing may be left of it."""
        before = self.said().count(" is up at ")
        process = self.start("up", *words)
        try:
            started = wait_until(
                lambda: self.said().count(" is up at ") > before or process.poll() is not None,
                within_s=START_S,
            )
            assert started, self.said()
            assert process.poll() is None, self.said()
            yield process
        finally:
            process.terminate()
            code = process.wait(STOP_S)
        assert code == 0, self.said()
        assert "left behind" not in self.said()
        self.assert_nothing_is_left()

    def assert_nothing_is_left(self) -> None:
        """No process, no file that claims a service."""
        assert self.processes() == {}
        assert not (self.root / "service.json").exists()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False, timeout=5).is_success
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A stack that this module's tests share, with one registered model."""
    folder = tmp_path_factory.mktemp("stack")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "change.yaml").write_text(CHANGE)
    home = Home(folder / "home")
    with home.up():
        added = home.run(
            "model", "add", "tiny", "--source", "org/tiny", "--config", str(folder / "config.json")
        )
        assert added.returncode == 0, added.stderr
        yield home


@pytest.fixture
def change(home: Home) -> str:
    return str(home.root.parent / "change.yaml")


def test_it_is_ready_and_says_where_it_is(home: Home) -> None:
    assert _is_ready(home.url())
    assert f"gatekeeper is up at {home.url()}" in home.said()


def test_a_second_stack_in_the_same_place_is_refused(home: Home) -> None:
    second = home.run("up")
    assert second.returncode == 4
    assert f"already up, at {home.url()}" in second.stderr


def test_the_registry_is_shared_by_operator_plan_and_api(home: Home, change: str) -> None:
    assert "org/tiny" in home.run("model", "list").stdout
    planned = home.run("plan", change)
    assert planned.returncode == 0, planned.stderr
    assert "shape from the registry" in planned.stdout
    assert "bytes per token  512 " in planned.stdout
    assert [
        model["name"] for model in httpx.get(f"{home.url()}/api/v1/models", trust_env=False).json()["items"]
    ] == ["tiny"]


def test_the_running_service_is_found_and_its_refusals_are_shown(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CHANGE.replace("model: tiny", "model: huge"))
    refused = home.run("gate", str(other))
    assert refused.returncode == 4
    assert "model: unknown 'huge' (allowed: tiny)" in refused.stderr


def test_a_run_outlives_the_command_that_waited_for_it_and_can_be_cancelled(home: Home, change: str) -> None:
    waiting = home.start("gate", change)
    assert wait_until(lambda: "tiny_fp8: queued" in home.said(), within_s=30), home.said()
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(20) == 130
    assert "the run goes on" in home.said()
    [_, line] = home.run("runs", "--state", "queued").stdout.splitlines()
    run_id = line.split()[-1]
    cancelled = home.run("cancel", run_id)
    assert cancelled.returncode == 0, cancelled.stderr
    shown = home.run("show", "--wait", run_id)
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (3, "CANCELLED  tiny_fp8")
    retried = home.run("retry", run_id)
    assert "tiny_fp8 is queued" in retried.stdout
    assert home.run("cancel", run_id).returncode == 0


def test_empty_lists_are_said_to_be_empty(home: Home) -> None:
    for words in (("deltas",), ("baseline", "list"), ("runs", "--verdict", "PASS")):
        assert home.run(*words).stdout == "nothing found\n"
    assert home.run("baseline", "pin", "7").returncode == 4


def test_a_worker_that_is_killed_is_started_again(home: Home) -> None:
    before = min(home.processes("celery"))
    os.kill(before, signal.SIGKILL)
    assert wait_until(lambda: "starting the worker again (1/3)" in home.said(), within_s=20), home.said()
    assert "the worker ended with -9" in home.said()
    assert wait_until(lambda: bool(home.processes("celery")), within_s=20)


def test_a_database_that_is_killed_is_started_again(home: Home) -> None:
    pid_file = home.root / "postgres" / "postmaster.pid"
    os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGKILL)
    assert wait_until(lambda: "PostgreSQL had ended" in home.said(), within_s=60), home.said()
    assert wait_until(lambda: _is_ready(home.url()), within_s=20)


def test_killing_the_supervisor_takes_everything_along_and_the_next_start_works(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    process = home.start("up")
    assert wait_until(lambda: " is up at " in home.said(), within_s=START_S), home.said()
    process.kill()
    process.wait()
    assert wait_until(lambda: not home.processes(), within_s=30), home.processes()
    assert (home.root / "service.json").exists()  # stale: nobody could remove it
    assert home.run("runs").returncode == 3
    with home.up():
        assert home.run("runs").stdout == "nothing found\n"


def test_a_taken_default_port_is_stepped_over_and_a_chosen_one_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        home = Home(tmp_path / "home", GATEKEEPER_PORT=str(port))
        refused = home.run("up", "--port", str(port))
        assert refused.returncode == 4
        assert f"port: {port} is taken" in refused.stderr
        with home.up():
            assert home.url() != f"http://127.0.0.1:{port}"
            assert _is_ready(home.url())


def test_an_interrupted_gate_stops_the_stack_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "change.yaml").write_text(CHANGE)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    home = Home(tmp_path / "home")
    words = ("model", "add", "tiny", "--source", "org/tiny", "--config", str(tmp_path / "config.json"))
    assert home.run(*words).returncode == 0
    gate = home.start("gate", str(tmp_path / "change.yaml"))
    assert wait_until(lambda: "tiny_fp8: queued" in home.said(), within_s=START_S), home.said()
    gate.send_signal(signal.SIGINT)
    started = time.monotonic()
    assert gate.wait(STOP_S) == 130
    assert time.monotonic() - started < 40
    assert "the run was cancelled" in home.said()
    home.assert_nothing_is_left()


def test_a_database_that_does_not_answer_ends_the_start_with_3(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", DATABASE_URL="postgresql://nobody@127.0.0.1:9/none")
    failed = home.run("up")
    assert failed.returncode == 3
    assert "PostgreSQL: " in failed.stderr
    home.assert_nothing_is_left()


def test_another_kind_of_database_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", DATABASE_URL="sqlite:///here.db")
    refused = home.run("up")
    assert refused.returncode == 4
    assert "DATABASE_URL must begin with postgresql://" in refused.stderr


def test_serve_and_migrate_need_a_database(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for command in ("serve", "migrate"):
        refused = home.run(command)
        assert refused.returncode == 4
        assert "DATABASE_URL: is not set" in refused.stderr


def test_serve_takes_no_descriptor_that_is_no_socket(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    refused = home.run("serve", "--fd", "17")
    assert refused.returncode == 4
    assert "--fd: 17 is none (allowed: an open, listening socket)" in refused.stderr


def test_migrate_brings_an_empty_database_up_to_date(tmp_path: Path, postgres_server: str) -> None:
    home = Home(tmp_path / "home", DATABASE_URL=postgres_server)
    assert home.run("migrate").stdout == "the database is up to date\n"
    assert home.run("migrate").returncode == 0
    assert home.run("model", "list").stdout.startswith("none is registered")
