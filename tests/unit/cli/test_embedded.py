"""Parts of the embedded stack that need no database: its lock and file, its processes, its ports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gatekeeper.domain.errors import Conflict, InvalidInput, ServiceUnavailable
from gatekeeper.embedded import bundled_model, service_file
from gatekeeper.embedded.listener import StackFailed, listener_from
from gatekeeper.embedded.processes import MARK, Child, kill_marked, marked_processes, wait_until
from gatekeeper.embedded.stack import running_stack
from gatekeeper.settings import Settings

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


def child(argv: list[str], tmp_path: Path, mark: str) -> Child:
    return Child("thing", argv, environment=os.environ | {MARK: mark}, log=tmp_path / "thing.log")


# --- the lock and the file -------------------------------------------------------------------------------------------


def test_a_stack_is_found_while_its_lock_is_held(tmp_path: Path) -> None:
    assert service_file.find_running(tmp_path) is None
    with service_file.hold(tmp_path):
        service_file.announce(tmp_path, "http://127.0.0.1:8800")
        running = service_file.find_running(tmp_path)
        assert running == service_file.RunningService(url="http://127.0.0.1:8800", pid=os.getpid())
    assert service_file.find_running(tmp_path) is None
    assert not (tmp_path / "service.json").exists()


def test_a_file_without_its_lock_is_stale(tmp_path: Path) -> None:
    (tmp_path / "service.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": os.getpid()}))
    (tmp_path / "stack.lock").touch()
    assert service_file.find_running(tmp_path) is None


def test_a_second_stack_is_told_where_the_first_is(tmp_path: Path) -> None:
    with service_file.hold(tmp_path):
        service_file.announce(tmp_path, "http://127.0.0.1:8801")
        with (
            pytest.raises(Conflict, match=r"already up, at http://127.0.0.1:8801"),
            service_file.hold(tmp_path),
        ):
            pass


def test_a_stack_that_is_starting_is_waited_for(tmp_path: Path) -> None:
    with service_file.hold(tmp_path):
        threading.Timer(0.3, service_file.announce, (tmp_path, "http://127.0.0.1:8802")).start()
        running = service_file.find_running(tmp_path, within_s=5)
        assert running is not None
        assert running.url.endswith(":8802")


def test_a_stack_that_never_comes_up_is_not_waited_for_forever(tmp_path: Path) -> None:
    with service_file.hold(tmp_path), pytest.raises(ServiceUnavailable, match="does not come up"):
        service_file.find_running(tmp_path, within_s=0.2)


def test_a_lock_is_gone_with_its_process_however_that_ended(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib; from gatekeeper.embedded import service_file as s\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "with s.hold(root): s.announce(root, 'http://127.0.0.1:1'); print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"held\n"
        process.kill()
        process.wait()
    assert (tmp_path / "service.json").exists()
    assert service_file.find_running(tmp_path) is None


def test_a_data_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert service_file.find_running(tmp_path / "file") is None
    with pytest.raises(InvalidInput, match="GATEKEEPER_HOME"), service_file.hold(tmp_path / "file"):
        pass


# --- processes -------------------------------------------------------------------------------------------------------


def test_a_child_is_stopped_politely(tmp_path: Path) -> None:
    running = child(SLEEP, tmp_path, "polite")
    running.start()
    assert running.exit_code() is None
    running.stop([(signal.SIGTERM, 5.0)])
    assert running.exit_code() == -signal.SIGTERM


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    running = child(STUBBORN, tmp_path, "stubborn")
    running.start()
    assert wait_until(lambda: running.log_tail() == ["up"], within_s=10)
    running.stop([(signal.SIGTERM, 0.3)])
    assert running.exit_code() == -signal.SIGKILL


def test_a_child_that_died_shows_its_last_words(tmp_path: Path) -> None:
    running = child(
        [sys.executable, "-c", "print('x' * 99_999); print('no space left'); raise SystemExit(7)"],
        tmp_path,
        "w",
    )
    running.start()
    assert wait_until(lambda: running.exit_code() is not None, within_s=10)
    assert running.exit_code() == 7
    assert running.log_tail(1) == ["no space left"]


def test_grandchildren_that_were_left_behind_are_found_and_killed(tmp_path: Path) -> None:
    leaver = f"import subprocess; subprocess.Popen({SLEEP!r}, start_new_session=True)"
    running = child([sys.executable, "-c", leaver], tmp_path, "left-behind")
    running.start()
    assert wait_until(lambda: running.exit_code() is not None, within_s=10)
    [(pid, command)] = kill_marked("left-behind", within_s=0.2).items()
    assert "time.sleep(60)" in command
    assert marked_processes("left-behind") == {}
    assert not _is_alive(pid)


LINGERING = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
"""Sees its work through on SIGTERM, as a Celery worker does."""


@pytest.mark.parametrize(
    ("argv", "options"),
    [(SLEEP, ""), ([sys.executable, "-c", LINGERING], ", orphan_signal=signal.SIGQUIT")],
    ids=["willing", "lingering"],
)
def test_children_end_with_a_parent_that_was_killed(tmp_path: Path, argv: list[str], options: str) -> None:
    code = (
        "import os, signal, sys, time, pathlib; from gatekeeper.embedded.processes import MARK, Child\n"
        f"c = Child('c', {argv!r}, environment=os.environ | {{MARK: 'orphan'}}, "
        f"log=pathlib.Path(sys.argv[1]){options})\n"
        "c.start(); time.sleep(1); print(c.pid, flush=True); time.sleep(60)"
    )
    ignoring = f"import signal; signal.signal(signal.SIGQUIT, signal.SIG_IGN)\n{code}"  # as in the background
    parent = subprocess.Popen([sys.executable, "-c", ignoring, str(tmp_path / "log")], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    assert wait_until(lambda: not _is_alive(pid), within_s=5)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- ports -----------------------------------------------------------------------------------------------------------


def test_the_next_free_port_is_found() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with listener_from("127.0.0.1", port) as first, listener_from("127.0.0.1", port) as second:
            assert port < first.getsockname()[1] < second.getsockname()[1] < port + 50, "held from then on"
        with pytest.raises(StackFailed, match="--port"):
            listener_from("127.0.0.1", 65536)


def test_a_listener_is_of_the_family_of_its_address() -> None:
    with listener_from("::1", 20_000) as listener:
        assert listener.family == socket.AF_INET6
        assert listener.getsockname()[0] == "::1"


def test_an_address_at_which_nothing_can_listen_is_said_with_the_reason() -> None:
    with pytest.raises(StackFailed, match=r"nothing can listen on 192\.0\.2\.1, port 20000: Cannot assign"):
        listener_from("192.0.2.1", 20_000)


def test_a_chosen_port_that_is_taken_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        started = time.monotonic()
        with (
            pytest.raises(InvalidInput, match=rf"port: {port} is taken"),
            running_stack(Settings(home=tmp_path), say=print, port=port),
        ):
            pass
    assert time.monotonic() - started < 2
    assert not (tmp_path / "postgres").exists()


# --- the bundled model -----------------------------------------------------------------------------------------------


def test_the_bundled_models_shape_is_read_once_it_is_built(tmp_path: Path) -> None:
    folder = bundled_model.directory(tmp_path)
    folder.mkdir(parents=True)
    config = {"num_attention_heads": 9, "num_hidden_layers": 31, "num_key_value_heads": 3, "head_dim": 64}
    config |= {"max_position_embeddings": 8192}
    (folder / "config.json").write_text(json.dumps(config))
    assert bundled_model.bundled_model(tmp_path).shape == bundled_model.SHAPE
    (folder / "gatekeeper-finished").touch()
    shape = bundled_model.bundled_model(tmp_path).shape
    assert shape is not None
    assert shape.layers == 31
