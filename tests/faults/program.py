"""A program that serves an engine's API with one fault planted.

`python -m tests.faults.program --fault NAME --port P --upstream URL --log FILE` stands before a running engine as if it
had just started: it says what that engine's log says, and counters count from here. With a command at its end,
`… --upstream URL -- COMMAND …`, it starts the engine too, in its own process group, and ends when that does, with its
exit status.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from tests.faults.kinds import Fault
from tests.faults.proxy import Proxy
from tests.faults.table import FAULTS


@dataclass(kw_only=True)
class Log:
    """A running engine's log, said again: first all so far, with the fault, then what is new, when asked for it."""

    path: Path
    _said_bytes: int = 0

    def say_so_far(self, fault: Fault) -> None:
        """Say what a start-up log says under the fault."""
        print(fault.log(self._new()), end="", flush=True)

    def say_new(self) -> None:
        """Say every line that has come since."""
        print(self._new(), end="", flush=True)

    def _new(self) -> str:
        with self.path.open("rb") as file:
            file.seek(self._said_bytes)
            whole_lines, newline, _ = file.read().rpartition(b"\n")
        self._said_bytes += len(whole_lines + newline)
        return (whole_lines + newline).decode(errors="replace")


def main(arguments: Sequence[str]) -> None:
    """Serve until told to stop."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    ours, command = parser().parse_args(arguments[:split]), arguments[split + 1 :]
    proxy = Proxy(fault=FAULTS[ours.fault], upstream=connected(ours.upstream))
    if command:
        engine = subprocess.Popen(command)
        threading.Thread(target=lambda: os._exit(engine.wait() & 0xFF), daemon=True).start()
    else:
        log = Log(path=ours.log)
        log.say_so_far(proxy.fault)
        proxy.counted_before = httpx.get(f"{ours.upstream}/metrics", trust_env=False).text
        proxy.after_answer = log.say_new
    uvicorn.run(
        proxy.app(),
        host="127.0.0.1",
        port=ours.port,
        log_level="warning",
        ws="none",
        timeout_graceful_shutdown=1,
    )


def connected(url: str) -> httpx.AsyncClient:
    """A client that waits as long as the engine takes, for as many requests at once as its own clients send."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False)


def parser() -> argparse.ArgumentParser:
    """Our own arguments."""
    own = argparse.ArgumentParser()
    own.add_argument("--fault", choices=FAULTS, required=True)
    own.add_argument("--port", type=int, required=True)
    own.add_argument("--upstream", required=True)
    own.add_argument("--log", type=Path)
    return own


if __name__ == "__main__":
    main(sys.argv[1:])
