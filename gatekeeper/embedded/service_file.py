"""Where a running stack is: a lock that lives as long as its process, and a file that names its address.

The lock decides, because the system releases it however the process ends; a file without its lock is stale.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from gatekeeper.domain.errors import Conflict, FieldProblem, InvalidInput, ServiceUnavailable

FILE_NAME: Final = "service.json"
LOCK_NAME: Final = "stack.lock"
PROBE_S: Final = 1.0
"""How long the lock may look taken because somebody is just looking."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningService:
    """A stack that is up: its address and its process."""

    url: str
    pid: int


@contextmanager
def hold(root: Path) -> Iterator[None]:
    """Be the one stack of this data directory.

    Raises Conflict if there is one already, InvalidInput if this is no directory to write to.
    """
    with _open_lock(root) as lock:
        deadline = time.monotonic() + PROBE_S
        while not _try_lock(lock.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                running = _read(root)
                where = f"at {running.url} (pid {running.pid})" if running else "and still starting"
                raise Conflict(f"a stack with the data directory {root} is already up, {where}")
            time.sleep(0.05)
        try:
            yield
        finally:
            (root / FILE_NAME).unlink(missing_ok=True)


def _open_lock(root: Path) -> IO[str]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        return (root / LOCK_NAME).open("a")
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
        allowed = "a directory that can be written to"
        raise InvalidInput(
            [FieldProblem(field="GATEKEEPER_HOME", problem=problem, allowed=allowed)]
        ) from error


def announce(root: Path, url: str) -> None:
    """Name the address of this process's stack. Only with the lock held."""
    scratch = root / f".{FILE_NAME}.{os.getpid()}"
    scratch.write_text(json.dumps(asdict(RunningService(url=url, pid=os.getpid()))))
    scratch.replace(root / FILE_NAME)


def find_running(root: Path, *, within_s: float = 30.0) -> RunningService | None:
    """The stack of this data directory, or None. Waits for one that is starting.

    Raises ServiceUnavailable if that takes longer than `within_s`.
    """
    deadline = time.monotonic() + within_s
    while _is_held(root):
        running = _read(root)
        if running:
            return running
        if time.monotonic() > deadline:
            raise ServiceUnavailable(f"the stack of {root} is starting, but does not come up")
        time.sleep(0.1)
    return None


def _is_held(root: Path) -> bool:
    try:
        with (root / LOCK_NAME).open("r") as lock:
            return not _try_lock(lock.fileno(), fcntl.LOCK_SH)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(root: Path) -> RunningService | None:
    try:
        document = json.loads((root / FILE_NAME).read_text())
        return RunningService(url=str(document["url"]), pid=int(document["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
