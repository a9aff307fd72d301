"""What a run is doing, on stderr: one rewritten line on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO

from gatekeeper.client import RunStatus
from gatekeeper.domain.run import RunState

QUIET_S = 15.0
"""How often a stage that goes on is mentioned where lines cannot be rewritten."""
CLEAR = "\r\x1b[K"


class ProgressLine:
    """Shows the status of one run at a time."""

    def __init__(self, stream: IO[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._rewrites = stream.isatty()
        self._started = clock()
        self._stage = ""
        self._said_at = 0.0

    def __call__(self, status: RunStatus) -> None:
        """Show a status."""
        now = self._clock()
        line = f"{describe(status)}  {elapsed(now - self._started)}"
        if self._rewrites:
            self._write(CLEAR + line)
            return
        stage = f"{status.state} {status.progress.arm} {status.progress.stage}"
        if stage != self._stage or now - self._said_at >= QUIET_S:
            self._stage, self._said_at = stage, now
            self._write(line + "\n")

    def clear(self) -> None:
        """Leave an empty line behind for what comes next."""
        if self._rewrites:
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def describe(status: RunStatus) -> str:
    """Name, stage, arm and items, such as `fp8_e4m3: candidate, fidelity 4/16`."""
    progress = status.progress
    match status.state:
        case RunState.QUEUED:
            ahead = status.document.get("ahead")
            what = f"queued, waiting for a worker{f', {ahead} ahead' if ahead else ''}"
        case RunState.RUNNING:
            items = f" {progress.done}/{progress.total}" if progress.total else ""
            what = ", ".join(
                part for part in (progress.arm, f"{progress.stage or 'starting'}{items}") if part
            )
        case state:
            what = str(state)
    return f"{status.name}: {what}"


def elapsed(seconds: float) -> str:
    """Seconds as `42 s` or `3 min 05 s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
