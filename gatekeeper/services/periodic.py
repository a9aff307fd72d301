"""Something done in the background every few seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from gatekeeper.domain.errors import GatekeeperError

log = logging.getLogger(__name__)


class Periodic:
    """A thread that does `action` every `seconds` until it is stopped. A failure is logged; the next round comes."""

    def __init__(self, name: str, action: Callable[[], object], *, seconds: float) -> None:
        self._action, self._seconds = action, seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"gatekeeper-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, *, timeout: float = 10.0) -> None:
        """End after the round in progress."""
        self._stopping.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            try:
                self._action()
            except (GatekeeperError, SQLAlchemyError) as error:
                log.warning("%s failed and will be tried again: %s", self._thread.name, error)
            except Exception:  # whatever it was, what this thread does is to go on
                log.exception("%s failed unexpectedly and will be tried again", self._thread.name)
