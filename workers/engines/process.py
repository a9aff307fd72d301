"""Supervised subprocesses: engines and the tools that measure them."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.supervisor import MARKER, TERM_SECONDS, end_marked

SUBPROCESS_VARIABLES = {
    "SPT_NOENV": "1",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}
"""setproctitle, which vLLM uses, must not wipe the environment that carries the marker; loopback needs no proxy."""

NOT_HANDED_ON = "OTEL_"
"""Variables that begin so are about the worker's own traces. By them vLLM would trace too, in the middle of what is
measured (0.32 does where `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set), with the worker's credentials.
"""

LOG_BYTES = 2_000_000
"""How much of a log is kept: its first and its last half of this."""


@dataclass(kw_only=True)
class Supervised:
    """A running command with its supervisor. `marker` finds every process of it."""

    supervisor: subprocess.Popen[bytes]
    marker: str
    log: Path

    @property
    def alive(self) -> bool:
        """True while the command runs."""
        return self.supervisor.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The command's exit status modulo 256, or None while it runs."""
        return self.supervisor.poll()

    def stop(self) -> None:
        """End the command and all that it started. Raises RuntimeError if a process outlives even SIGKILL."""
        if self.supervisor.stdin is not None:
            self.supervisor.stdin.close()
        try:
            self.supervisor.wait(2 * TERM_SECONDS)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            self.supervisor.wait()
        left = end_marked(self.marker)
        if left:
            raise RuntimeError(f"processes {left} of {self.marker} would not end")

    def wait(self, seconds: float) -> bool:
        """Wait for the command's end, at most `seconds`; say whether it ended."""
        try:
            self.supervisor.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def start(command: Sequence[str], *, run_id: str, log: Path, environment: Mapping[str, str]) -> Supervised:
    """Start `command` under a supervisor, its output going to `log`, with `environment` over the present one."""
    marker = f"{run_id}:{uuid.uuid4().hex[:12]}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_HANDED_ON)}
    with log.open("wb") as output:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "workers.supervisor", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=inherited | dict(environment) | SUBPROCESS_VARIABLES | {MARKER: marker},
            start_new_session=True,
        )
    return Supervised(supervisor=supervisor, marker=marker, log=log)


def read_log(path: Path, limit: int = LOG_BYTES) -> tuple[str, bool]:
    """A log's text, and whether its middle was left out to keep it within `limit` bytes."""
    if not path.exists():
        return "", False
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= limit:
            return file.read().decode(errors="replace").replace("\0", ""), False
        head = file.read(limit // 2)
        file.seek(size - limit // 2)
        tail = file.read()
    text = b"\n[... left out ...]\n".join((head, tail)).decode(errors="replace")
    return text.replace("\0", ""), True
