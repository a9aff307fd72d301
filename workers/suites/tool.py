"""Measuring tools that run as programs of their own: watched for progress, cancellation and the engine's death."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from workers.engines.base import Metrics, Server
from workers.engines.errors import EngineStalled, ProbeFailed
from workers.engines.process import Supervised, read_log
from workers.suites.base import RUNNING, WAITING, Bench

WORK_COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
GAUGES = (RUNNING, WAITING)
POLL_SECONDS = 0.5


def run_tool(bench: Bench, process: Supervised, poll: Callable[[Metrics], bool]) -> None:
    """Follow a tool to its end, or end it as soon as `poll`, which is called now and then, says that this is enough.

    `poll` is given the engine's counters. Raises ProbeFailed with the end of the tool's output if it fails, EngineDied
    or EngineStalled if the engine does, and whatever the server's `check` raises.
    """
    try:
        is_enough = watch(bench.server, process.wait, poll)
    finally:
        process.stop()
    if not bench.server.process.alive:
        raise bench.server.died()
    if is_enough:
        _await_idle(bench.server)
    elif process.exit_status != 0:
        raise ProbeFailed(
            f"{process.log.stem} ended with status {process.exit_status}: {last_words(process.log)}"
        )


def watch(server: Server, wait: Callable[[float], bool], poll: Callable[[Metrics], bool]) -> bool:
    """Return when the work or the engine has ended, or (True) when it is enough; raise when nothing moves any more.

    `wait(seconds)` waits for the end of the work and says whether it has come; `poll` is given the engine's counters.
    """
    last_work, last_moved, patience = -1.0, time.monotonic(), server.stall_seconds
    while not wait(POLL_SECONDS):
        server.check()
        if not server.process.alive:
            return False
        counters = server.metrics()
        work = sum(counters.get(counter, 0.0) for counter in WORK_COUNTERS)
        if work != last_work:
            last_work, last_moved = work, time.monotonic()
        elif time.monotonic() - last_moved > patience:
            if sum(counters.get(gauge, 0.0) for gauge in GAUGES):
                raise EngineStalled(f"requests wait, but no token in or out for {patience:.0f} s")
            raise ProbeFailed(f"the tool has sent no request for {patience:.0f} s")
        if poll(counters):
            return True
    return False


def _await_idle(server: Server) -> None:
    """Requests of a tool that was ended are given up by the engine soon; the next probe must not meet them."""
    give_up = time.monotonic() + server.stall_seconds
    while sum(server.metrics().get(gauge, 0.0) for gauge in GAUGES):
        server.check()
        if time.monotonic() > give_up:
            raise EngineStalled("requests of a tool that was ended stay with the engine")
        time.sleep(POLL_SECONDS)


def last_words(log: Path) -> str:
    """The end of a tool's output, in one line."""
    lines = [line.strip() for line in read_log(log, 20_000)[0].splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-600:] or "it said nothing"
