"""Runs one command and leaves nothing of it behind, whatever becomes of the process that asked for it.

`python -m workers.supervisor COMMAND …` starts the command in a session of its own, and ends every process of
it when the command ends, when told to (SIGTERM), or when standard input closes: the kernel closes that pipe also when
the parent is killed. It imports next to nothing, so that it starts in an instant and holds no memory.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from gatekeeper.marked import marked_processes

MARKER = "GATEKEEPER_LAUNCH"
"""Environment variable that a supervisor and all it starts inherit: `<run id>:<launch>`."""

TERM_SECONDS = 8.0


def end_marked(prefix: str, *, patience: float = TERM_SECONDS) -> list[int]:
    """Ask every marked process to end, then make it; return those still there (there should be none)."""
    start = time.monotonic()
    while remaining := list(marked_processes(MARKER, prefix)):
        waited = time.monotonic() - start
        if waited > 2 * patience:
            return remaining
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if waited < patience else signal.SIGKILL)
        time.sleep(0.2)
    return []


def supervise(command: Sequence[str]) -> int:
    """Run `command` to its end, or until told to stop. Returns its exit status, negative for a signal."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    while child.poll() is None and not told:
        readable, _, _ = select.select([sys.stdin], [], [], 0.25)
        if readable and not os.read(sys.stdin.fileno(), 1):
            break
    _end(child)
    return child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child's process group, then whatever of it left the group."""
    for kind, patience in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)
    end_marked(os.environ[MARKER], patience=1.0)


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]) & 0xFF)
