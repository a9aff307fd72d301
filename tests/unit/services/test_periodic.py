"""What is done in the background every few seconds."""

from __future__ import annotations

import threading

from gatekeeper.services.periodic import Periodic


def test_the_next_round_comes_after_any_failure() -> None:
    rounds: list[int] = []
    enough = threading.Event()

    def fail() -> None:
        rounds.append(1)
        if len(rounds) == 3:
            enough.set()
        raise OverflowError("unexpected")

    periodic = Periodic("test", fail, seconds=0.001)
    periodic.start()
    assert enough.wait(5)
    periodic.stop()
