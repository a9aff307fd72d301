"""The embedded PostgreSQL, run for real."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from gatekeeper.embedded import account, cluster, postgres

STARTER = (
    "import pathlib, sys, time; from gatekeeper.embedded import postgres;"
    "print(postgres.start(pathlib.Path(sys.argv[1])), flush=True); time.sleep(60)"
)


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "postgres"
    yield directory
    postgres.stop(directory)


def start(directory: Path) -> str:
    return postgres.start(directory, settings=postgres.FAST)


def query(url: str, statement: str) -> object:
    engine = sqlalchemy.create_engine(url)
    try:
        with engine.begin() as connection:
            result = connection.execute(sqlalchemy.text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()


def processes_of(directory: Path) -> list[int]:
    """Every process that has this directory in its command line or as its working directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_its = str(directory).encode() in (entry / "cmdline").read_bytes()
            if entry.name.isdigit() and (is_its or (entry / "cwd").samefile(directory)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_until(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def postmaster_pid(directory: Path) -> int:
    return int((directory / "postmaster.pid").read_text().splitlines()[0])


def test_a_new_directory_becomes_a_database_that_keeps_what_is_written(data_dir: Path) -> None:
    query(start(data_dir), "create table kept as select 42 as answer")
    postgres.stop(data_dir)
    assert query(start(data_dir), "select answer from kept") == 42


def test_it_speaks_utf8_and_listens_on_no_network_address(data_dir: Path) -> None:
    url = start(data_dir)
    assert query(url, "show server_encoding") == "UTF8"
    assert query(url, "show listen_addresses") == ""
    assert data_dir.stat().st_mode & 0o077 == 0


def test_starting_twice_yields_the_same_server(data_dir: Path) -> None:
    first = start(data_dir)
    pid = postmaster_pid(data_dir)
    assert start(data_dir) == first
    assert postmaster_pid(data_dir) == pid


def test_stopping_leaves_no_process(data_dir: Path) -> None:
    url = start(data_dir)
    with psycopg.connect(url.replace("+psycopg", "")):  # a connected client does not hold it up
        assert processes_of(data_dir)
        postgres.stop(data_dir)
    assert processes_of(data_dir) == []


def test_stopping_what_does_not_run_is_no_error(data_dir: Path) -> None:
    postgres.stop(data_dir)
    start(data_dir)
    postgres.stop(data_dir)
    postgres.stop(data_dir)
    assert processes_of(data_dir) == []


def test_it_starts_again_after_the_server_was_killed(data_dir: Path) -> None:
    query(start(data_dir), "create table kept as select 42 as answer")
    os.kill(postmaster_pid(data_dir), signal.SIGKILL)
    assert query(start(data_dir), "select answer from kept") == 42


def test_a_stranger_with_the_pid_of_a_killed_server_does_not_matter(data_dir: Path) -> None:
    query(start(data_dir), "create table kept as select 42 as answer")
    os.kill(postmaster_pid(data_dir), signal.SIGKILL)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        pid_file = data_dir / "postmaster.pid"
        _, _, rest = pid_file.read_text().partition("\n")
        pid_file.write_text(f"{stranger.pid}\n{rest}")
        assert query(start(data_dir), "select answer from kept") == 42
        assert stranger.poll() is None
        stranger.terminate()


def test_the_server_ends_with_a_starter_that_is_killed_and_starts_again(data_dir: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, data_dir], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        url = starter.stdout.readline().strip()
        query(url, "create table kept as select 42 as answer")
        starter.kill()
    wait_until(lambda: processes_of(data_dir) == [])
    assert query(start(data_dir), "select answer from kept") == 42


def test_a_start_right_after_the_starter_was_killed_waits_for_the_shutdown(data_dir: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, data_dir], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        starter.stdout.readline()
        starter.kill()
        starter.wait()
        url = start(data_dir)
    time.sleep(1)
    assert query(url, "select 1") == 1


def test_running_stops_only_what_it_started(data_dir: Path) -> None:
    with postgres.running(data_dir, settings=postgres.FAST) as outer:
        with postgres.running(data_dir, settings=postgres.FAST) as inner:
            assert inner == outer
        assert query(outer, "select 1") == 1
    assert processes_of(data_dir) == []


@pytest.mark.parametrize("name", ["with space", "comma,in,it", "long-" * 20, "ünï'\"%&?#"])
def test_any_directory_name_works(tmp_path: Path, name: str) -> None:
    with postgres.running(tmp_path / name / "postgres", settings=postgres.FAST) as url:
        assert query(url, "select 1") == 1


def test_a_directory_of_something_else_is_refused(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "thesis.txt").write_text("precious")
    with pytest.raises(postgres.PostgresUnavailable, match="no PostgreSQL data directory"):
        start(data_dir)
    assert (data_dir / "thesis.txt").read_text() == "precious"


def test_a_server_that_cannot_start_says_why(data_dir: Path) -> None:
    with pytest.raises(postgres.PostgresUnavailable, match="no_such_setting"):
        postgres.start(data_dir, settings={"no_such_setting": "1"})


def test_a_directory_of_another_user_is_refused(data_dir: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    start(data_dir)
    postgres.stop(data_dir)
    os.chown(data_dir, 1234, -1)
    with pytest.raises(postgres.PostgresUnavailable, match="belongs to uid 1234"):
        start(data_dir)
    os.chown(data_dir, account.owner_uid(), -1)


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root needs another account")
    monkeypatch.setattr(account, "_namespaces_work", lambda: False)


@pytest.mark.usefixtures("no_namespaces")
def test_root_without_user_namespaces_runs_it_under_another_account() -> None:
    if not account.can_enter(cluster.bin_dir()):
        pytest.skip("the environment lies in a directory that only root may enter")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        data_dir = Path(directory) / "postgres"
        with postgres.running(data_dir, settings=postgres.FAST) as url:
            assert Path(f"/proc/{postmaster_pid(data_dir)}").stat().st_uid != 0
            assert query(url, "select 1") == 1
        assert processes_of(data_dir) == []


@pytest.mark.usefixtures("no_namespaces")
def test_root_without_user_namespaces_is_told_what_that_account_cannot_reach(tmp_path: Path) -> None:
    with pytest.raises(postgres.PostgresUnavailable, match="cannot enter"):
        postgres.start(tmp_path / "postgres")  # pytest's directories are for their owner alone
