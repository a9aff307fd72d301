"""Who is there: workers answer Celery's own control messages, idle ones too. Asked in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from celery import Celery

from gatekeeper.queue import IMPATIENT, QUEUE_PREFIX, TASK

SILENCE_S: Final = 1.0
"""After so long without another answer a call is over."""
PATIENCE_S: Final = 0.6
"""Whoever asks waits so long at most."""
FRESH_S: Final = 5.0
"""An answer that is younger is not asked for again."""
REMEMBERED: Final = timedelta(hours=1)
"""A worker that has been silent for longer is forgotten."""
POLL_S: Final = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Present:
    """A worker that answered. `devices`: the kinds that it takes runs for; `run_ids`: what it works on, if anything."""

    worker: str
    devices: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    heard_at: datetime
    is_silent: bool = False
    """It did not answer the latest call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attendance:
    """The workers by name. `problem`: why they could not be asked; empty if they could."""

    workers: tuple[Present, ...]
    problem: str = ""


class RollCall:
    """Asks all workers which queues they listen to and what they work on."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="gatekeeper-roll-call")
        self._lock = threading.Lock()
        self._calls: tuple[Future[None], ...] = ()
        self._called_at, self._began = 0.0, datetime.now(UTC)
        self._known: dict[str, Present] = {}

    def attendance(self) -> Attendance:
        """Who is there, after PATIENCE_S at the latest; answers that come later are there the next time."""
        with self._lock:
            if all(call.done() for call in self._calls) and time.monotonic() - self._called_at > FRESH_S:
                self._began = datetime.now(UTC)
                self._calls = (
                    self._pool.submit(self._ask, "active_queues", self._note_queues),
                    self._pool.submit(self._ask, "active", self._note_tasks),
                )
                self._called_at = time.monotonic()
            calls = self._calls
        over = wait(calls, timeout=PATIENCE_S).not_done == set()
        with self._lock:
            found = sorted(self._known.values(), key=lambda known: known.worker)
            return Attendance(
                workers=tuple(
                    replace(known, is_silent=over and known.heard_at < self._began) for known in found
                ),
                problem=next(
                    (str(error) for call in calls if call.done() and (error := call.exception())), ""
                ),
            )

    def close(self) -> None:
        """Ask no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, what: str, note: Callable[[Present, Any], Present]) -> None:
        """One control message, and each answer to it noted as it comes. Raises what the broker raises."""

        def hear(answers: dict[str, Any]) -> None:
            now = datetime.now(UTC)
            with self._lock:
                for worker, answer in answers.items():
                    known = self._known.get(worker) or Present(worker=worker, heard_at=now)
                    self._known[worker] = replace(note(known, answer), heard_at=now)

        options = {**IMPATIENT, "polling_interval": POLL_S}
        with self._celery.connection_for_write(transport_options=options) as connection:
            connection.ensure_connection(**IMPATIENT)
            inspect = self._celery.control.inspect(timeout=SILENCE_S, connection=connection, callback=hear)
            getattr(inspect, what)()
        with self._lock:
            eldest = datetime.now(UTC) - REMEMBERED
            self._known = {name: known for name, known in self._known.items() if known.heard_at > eldest}

    @staticmethod
    def _note_queues(known: Present, answer: Any) -> Present:
        names = [queue["name"] for queue in answer] if isinstance(answer, list) else []
        devices = tuple(name.removeprefix(QUEUE_PREFIX) for name in names if name.startswith(QUEUE_PREFIX))
        return replace(known, devices=devices)

    @staticmethod
    def _note_tasks(known: Present, answer: Any) -> Present:
        tasks = answer if isinstance(answer, list) else []
        runs = tuple(str(task["args"][0]) for task in tasks if task["name"] == TASK and task["args"])
        return replace(known, run_ids=runs)
