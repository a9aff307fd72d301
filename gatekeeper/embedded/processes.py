"""Child processes of the embedded stack: each in its own session, logged to a file, stopped to the last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from gatekeeper import marked

MARK: Final = "GATEKEEPER_STACK"
"""The environment variable by which all that a stack started, however indirectly, is found again."""
POLL_S: Final = 0.1
TAIL_BYTES: Final = 16_384


class Child:
    """One process that is started, watched and stopped. It gets `orphan_signal` if this process dies.

    `handed_on`: file descriptors that it gets under the same numbers; they have to be open at every start.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        orphan_signal: signal.Signals = signal.SIGTERM,
        handed_on: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.log = log
        tether = [
            sys.executable,
            "-m",
            "gatekeeper.embedded.tether",
            str(os.getpid()),
            str(int(orphan_signal)),
        ]
        self._argv = [*tether, *argv]
        self._environment = dict(environment)
        self._handed_on = tuple(handed_on)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._argv,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=self._handed_on,
            )

    @property
    def pid(self) -> int | None:
        """The process id, which is also that of its group; None before the first start."""
        return self._process.pid if self._process else None

    def exit_code(self) -> int | None:
        """How it ended, or None while it runs (or before it was started)."""
        return self._process.poll() if self._process else None

    def log_tail(self, lines: int = 15) -> list[str]:
        """The end of its log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return file.read().decode("utf-8", "replace").splitlines()[-lines:]
        except OSError:
            return []

    def stop(self, signals: Sequence[tuple[signal.Signals, float]]) -> None:
        """Send it each signal in turn and wait the given seconds after each; at last kill its whole group."""
        if self._process is None:
            return
        for number, patience_s in signals:
            if self._process.poll() is not None:
                break
            self._process.send_signal(number)
            wait_until(lambda: self.exit_code() is not None, within_s=patience_s)
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def wait_until(condition: Callable[[], bool], *, within_s: float) -> bool:
    """Ask until the condition holds; False if it did not within the time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def marked_processes(mark: str) -> dict[int, str]:
    """Pid and command line of every other process that carries `mark`."""
    return marked.marked_processes(MARK, mark)


def kill_marked(mark: str, *, within_s: float = 5.0) -> dict[int, str]:
    """Kill what still carries `mark`, and return what that was."""
    left = marked_processes(mark)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        wait_until(lambda: not marked_processes(mark), within_s=within_s)
    return left
