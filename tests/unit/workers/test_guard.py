"""The heartbeat: says when to stop, and gives up only when nothing got through for a lease period."""

import threading
from collections.abc import Callable

import pytest

from gatekeeper.domain.errors import LeaseLost
from gatekeeper.services.claim import Pulse
from workers.engines.errors import RunCancelled
from workers.guard import Guard


def after_beats(beats: list[Pulse | Exception]) -> Guard:
    """A guard that has made these beats."""
    remaining, done = list(beats), threading.Event()

    def beat() -> Pulse:
        answer = remaining.pop(0)
        if not remaining:
            done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    guard = Guard(beat, lease_seconds=0.03)
    with guard:
        assert done.wait(5)
    return guard


def test_a_guard_that_hears_ok_lets_the_run_go_on_after_a_beat_that_failed() -> None:
    guard = after_beats(["ok", OSError("away"), "ok"])
    assert guard.check() is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("beats", "error"),
    [
        (["ok", "cancelled"], RunCancelled),
        (["lost"], LeaseLost),
        ([OSError("1"), OSError("2"), OSError("3")], LeaseLost),
    ],
)
def test_a_guard_stops_the_run_it_no_longer_holds(
    beats: list[Pulse | Exception], error: type[Exception]
) -> None:
    check: Callable[[], None] = after_beats(beats).check
    with pytest.raises(error):
        check()
