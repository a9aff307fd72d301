"""Keeps a run's lease alive while it is worked on, and says when to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gatekeeper.domain.errors import LeaseLost
from gatekeeper.services.claim import Pulse
from workers.engines.errors import RunCancelled

log = logging.getLogger(__name__)


class Guard:
    """A thread that renews the lease three times per lease period, also while a cancelled run is being taken down.

    `check` raises once the run must stop.

    A beat that fails (the database is away for a moment) is tried again; when none has got through for a whole lease
    period, the lease is taken as lost, since another worker may hold it by then.
    """

    def __init__(self, beat: Callable[[], Pulse], *, lease_seconds: float) -> None:
        self._beat = beat
        self._interval = lease_seconds / 3
        self._ended = threading.Event()
        self._verdict: Pulse = "ok"
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def check(self) -> None:
        """Raise RunCancelled or LeaseLost if the last beat said so."""
        match self._verdict:
            case "ok":
                return
            case "cancelled":
                raise RunCancelled
            case "lost":
                raise LeaseLost

    def _run(self) -> None:
        failures = 0
        while not self._ended.wait(self._interval):
            try:
                self._verdict = self._beat()
                failures = 0
            except Exception:
                failures += 1
                log.exception("heartbeat failed (%d in a row)", failures)
                if failures >= 3:
                    self._verdict = "lost"
            if self._verdict == "lost":
                return
