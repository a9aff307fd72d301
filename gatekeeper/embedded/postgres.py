"""The PostgreSQL that comes as a Python wheel: `start` makes and runs one in a directory, `stop` ends it.

It listens on a Unix socket in a directory that only its owner may enter, never on the network, and needs no
password. Any process of the same user connects by the URL. The server ends with the process that started it, even
when that one is killed, and a server that another process started is taken as it is. Linux only: it reads /proc.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

import psycopg

from gatekeeper.embedded import account, cluster
from gatekeeper.embedded.cluster import PostgresUnavailable

__all__ = ["FAST", "PostgresUnavailable", "running", "start", "stop"]

DATABASE = "gatekeeper"
DURABLE: Final[Mapping[str, str]] = MappingProxyType({})
FAST: Final[Mapping[str, str]] = MappingProxyType({"fsync": "off", "full_page_writes": "off"})
"""For databases that need not survive a power failure, as in tests."""
START_SECONDS = 60.0
ADOPTION_SECONDS = 0.3
STOP_SECONDS = 20.0
POLL_SECONDS = 0.05
LOG_TAIL_LINES = 8

LAUNCHER = """
exec 3<&0 </dev/null
"$@" & server=$!
{ read -r _ <&3; kill -INT $server; } 2>/dev/null & watcher=$!
exec 3<&-
wait $server; code=$?
kill $watcher 2>/dev/null
exit $code
"""
"""A shell between us and the server. Its standard input is a pipe that we hold: when we end, in whatever way, the
pipe ends too, and the shell asks the server for a fast shutdown."""

_launched: dict[Path, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Server:
    pid: int
    is_ready: bool


def start(data_dir: Path, *, settings: Mapping[str, str] = DURABLE) -> str:
    """Run the server of `data_dir`, making the directory if need be, and return a SQLAlchemy URL.

    `settings` are server parameters, and matter only if this call launches the server.
    Raises PostgresUnavailable with the server's own words.
    """
    data_dir = data_dir.absolute()
    with _exclusive(data_dir):
        cluster.initialize(data_dir, sync=settings.get("fsync") != "off")
        _ensure_ready(data_dir, settings)
        try:
            _create_database(data_dir)
        except psycopg.OperationalError:  # it was killed a moment ago, and still looked ready
            _ensure_ready(data_dir, settings)
            _create_database(data_dir)
    # Not SQLAlchemy's URL: it writes a blank as `+`, which psycopg, given the same URL, does not understand.
    return f"postgresql+psycopg://{cluster.USER}@/{DATABASE}?host={quote(str(cluster.socket_dir(data_dir)))}"


def stop(data_dir: Path) -> None:
    """End the server of `data_dir` and all its processes; nothing to do if none runs."""
    data_dir = data_dir.absolute()
    if not data_dir.exists():
        return
    with _exclusive(data_dir):
        if server := _find_server(data_dir):
            # Fast shutdown (clients are disconnected), then immediate, then by force: recovered at the next start.
            _end([server.pid], (signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
        _clear_leftovers(data_dir)
    if shell := _launched.pop(data_dir, None):
        _release(shell)
    if (sockets := cluster.socket_dir(data_dir)) != data_dir:
        shutil.rmtree(sockets, ignore_errors=True)


@contextmanager
def running(data_dir: Path, *, settings: Mapping[str, str] = DURABLE) -> Iterator[str]:
    """The server's URL while inside; at the end it is stopped, unless it was running before."""
    was_running = data_dir.exists() and _find_server(data_dir.absolute()) is not None
    try:
        yield start(data_dir, settings=settings)
    finally:
        if not was_running:
            stop(data_dir)


@contextmanager
def _exclusive(data_dir: Path) -> Iterator[None]:
    """One process at a time starts or stops the server of a directory."""
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    with (data_dir.parent / f".{data_dir.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ensure_ready(data_dir: Path, settings: Mapping[str, str]) -> None:
    """Wait out a server that is starting or stopping, launch one if none is left, and wait until it is ready."""
    shell: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        server = _find_server(data_dir)
        if server and server.is_ready and (shell or _stays_ready(data_dir)):
            return
        if shell and shell.poll() is not None:
            raise PostgresUnavailable(_log_tail(data_dir))
        if not server and not shell:
            _clear_leftovers(data_dir)
            shell = _spawn(data_dir, settings)
        time.sleep(POLL_SECONDS)
    raise PostgresUnavailable(f"not ready after {START_SECONDS:.0f} s; {_log_tail(data_dir)}")


def _stays_ready(data_dir: Path) -> bool:
    """A server whose starter was killed just now says for a moment longer that it is ready."""
    if data_dir not in _launched:
        time.sleep(ADOPTION_SECONDS)
    server = _find_server(data_dir)
    return server is not None and server.is_ready


def _spawn(data_dir: Path, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    fixed = {
        "listen_addresses": "",
        "unix_socket_directories": cluster.as_list_item(cluster.make_socket_dir(data_dir)),
        "unix_socket_permissions": "0700",
    }
    options = [
        argument for name, value in {**settings, **fixed}.items() for argument in ("-c", f"{name}={value}")
    ]
    command = [*account.command_prefix(), str(cluster.bin_dir() / "postgres"), "-D", str(data_dir), *options]
    with _log_path(data_dir).open("wb") as log:
        shell = subprocess.Popen(
            ["/bin/sh", "-c", LAUNCHER, "gatekeeper-postgres", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=data_dir,
            env=cluster.environment(),
            start_new_session=True,
        )
    if previous := _launched.pop(data_dir, None):
        _release(previous)
    _launched[data_dir] = shell
    return shell


def _release(shell: subprocess.Popen[bytes]) -> None:
    if shell.stdin:
        shell.stdin.close()
    shell.wait(timeout=STOP_SECONDS)


def _find_server(data_dir: Path) -> _Server | None:
    """The live server of this directory, by its postmaster.pid: the pid in its first line, the status in its eighth."""
    try:
        lines = (data_dir / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise PostgresUnavailable(f"{data_dir} belongs to another user") from error
    if not lines or not lines[0].strip().isdigit() or not _works_in(int(lines[0]), data_dir):
        return None
    is_ready = len(lines) >= 8 and lines[7].strip() == "ready"
    return _Server(pid=int(lines[0]), is_ready=is_ready)


def _works_in(pid: int, data_dir: Path) -> bool:
    """Whether `pid` is a PostgreSQL process of this directory: a pid alone may belong to a stranger after a reboot."""
    process = Path("/proc") / str(pid)
    try:
        return (process / "comm").read_text().strip() == "postgres" and (process / "cwd").samefile(data_dir)
    except OSError:
        return False


def _clear_leftovers(data_dir: Path) -> None:
    """With no server alive: end the children of one that was killed, and remove the files that make it seem alive."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    children = [pid for pid in pids if _works_in(pid, data_dir)]
    _end(children, (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
    for path in (data_dir / "postmaster.pid", *cluster.socket_dir(data_dir).glob(f"{cluster.SOCKET_NAME}*")):
        path.unlink(missing_ok=True)


def _end(pids: list[int], *attempts: tuple[signal.Signals, float]) -> None:
    """Send each signal in turn to those still alive, and wait as many seconds for them."""
    for number, seconds in attempts:
        deadline = time.monotonic() + seconds
        for pid in filter(_is_alive, pids):
            _send(pid, number)
        while any(map(_is_alive, pids)):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        else:
            return
    raise PostgresUnavailable(f"processes {pids} do not end")


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself
    except PermissionError as error:
        raise PostgresUnavailable(f"process {pid} belongs to another user") from error


def _is_alive(pid: int) -> bool:
    """False for a zombie too: it holds nothing any more."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _create_database(data_dir: Path) -> None:
    host = str(cluster.socket_dir(data_dir))
    with psycopg.connect(host=host, user=cluster.USER, dbname="postgres", autocommit=True) as connection:
        found = connection.execute("select 1 from pg_database where datname = %s", [DATABASE]).fetchone()
        if not found:
            connection.execute(f"create database {DATABASE}")


def _log_path(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}.log")


def _log_tail(data_dir: Path) -> str:
    lines = _log_path(data_dir).read_text(errors="replace").splitlines()
    return "; ".join(lines[-LOG_TAIL_LINES:]) or "it said nothing"
