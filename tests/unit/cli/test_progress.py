"""The progress line."""

from __future__ import annotations

import io
from dataclasses import replace

from gatekeeper.cli.progress import ProgressLine, describe
from gatekeeper.client import Progress, RunStatus
from gatekeeper.domain.run import RunState


def status(stage: str, done: int, *, state: RunState = RunState.RUNNING) -> RunStatus:
    progress = Progress(stage=stage, arm="candidate", done=done, total=16)
    return RunStatus(run_id="r", name="fp8", state=state, verdict=None, progress=progress, document={})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_queued_run_says_how_many_are_ahead() -> None:
    waiting = status("", 0, state=RunState.QUEUED)
    assert describe(waiting) == "fp8: queued, waiting for a worker"
    assert describe(replace(waiting, document={"ahead": 3})) == "fp8: queued, waiting for a worker, 3 ahead"


def test_without_a_terminal_a_line_appears_per_stage_and_every_15_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, clock=clock)
    for seconds in range(40):
        clock.now = 100.0 + seconds
        line(status("launch" if seconds < 10 else "fidelity", seconds))
    line.clear()
    assert stream.getvalue().splitlines() == [
        "fp8: candidate, launch 0/16  0 s",
        "fp8: candidate, fidelity 10/16  10 s",
        "fp8: candidate, fidelity 25/16  25 s",
    ]


def test_on_a_terminal_one_line_is_rewritten_and_cleared() -> None:
    stream, clock = Terminal(), Clock()
    line = ProgressLine(stream, clock=clock)
    line(status("fidelity", 1))
    clock.now = 225.0
    line(status("fidelity", 2))
    line.clear()
    text = stream.getvalue()
    assert "\n" not in text
    assert text.split("\r\x1b[K") == [
        "",
        "fp8: candidate, fidelity 1/16  0 s",
        "fp8: candidate, fidelity 2/16  2 min 05 s",
        "",
    ]


def test_a_queued_run_says_what_it_waits_for() -> None:
    stream = io.StringIO()
    ProgressLine(stream)(status("", 0, state=RunState.QUEUED))
    assert stream.getvalue() == "fp8: queued, waiting for a worker  0 s\n"
