"""SIGINT, SIGTERM and SIGHUP as one exception, raised once, so that stopping is not interrupted again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """Somebody wants this to end. Not an Exception: nothing that handles errors may swallow it."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(signal.Signals(number).name)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, the first signal raises Interrupted and later ones do nothing. What is ignored (nohup) stays so."""
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for ignored in numbers:
            signal.signal(ignored, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
