"""Bring back what was left lying: queued runs whose bell went unheard, runs whose worker is gone."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy.orm import Session

from gatekeeper.domain.run import RunState
from gatekeeper.queue import Ring
from gatekeeper.services.bell import ring_after_commit
from gatekeeper.services.finish import end_cancelled, end_error
from gatekeeper.storage import events, runs
from gatekeeper.storage.base import NOW
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.tables import RunRow

log = logging.getLogger(__name__)

FIRST_RING_AGAIN: Final = timedelta(seconds=30)
LAST_RING_AGAIN: Final = timedelta(minutes=10)
"""A queued run is rung for again after the first interval, then at doubling ones up to the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """The runs that a sweep touched."""

    taken_back: list[UUID] = field(default_factory=list)
    given_up: list[UUID] = field(default_factory=list)
    cancelled: list[UUID] = field(default_factory=list)
    rung: list[UUID] = field(default_factory=list)


def sweep(sessions: Sessions, *, ring: Ring, now: datetime | None = None) -> Swept:
    """Sweep once. `now` replaces the database's clock. Safe beside other sweepers and workers."""
    swept = Swept()
    bells: list[tuple[UUID, str]] = []
    with transaction(sessions) as session:
        for run in runs.list_expired(session, now):
            _take_back(session, run, swept, now)
            if run.id in swept.taken_back:
                bells.append((run.id, run.device))
        for run in runs.list_unanswered(session, now, first=FIRST_RING_AGAIN, last=LAST_RING_AGAIN):
            runs.set_columns(session, run.id, rung_at=now or NOW)
            bells.append((run.id, run.device))
    swept.rung.extend(run_id for run_id, device in bells if ring_after_commit(ring, run_id, device))
    return swept


def _take_back(session: Session, run: RunRow, swept: Swept, now: datetime | None) -> None:
    if run.cancel_requested:
        end_cancelled(session, run)
        swept.cancelled.append(run.id)
    elif run.takeovers >= runs.MAX_TAKEOVERS:
        times = run.takeovers + 1
        end_error(session, run, f"{times} workers in a row stopped renewing their lease on this run")
        swept.given_up.append(run.id)
    else:
        attempt = run.attempt + 1
        queued = runs.FRESH | {"queued_at": now or NOW, "rung_at": now or NOW}
        runs.set_columns(session, run.id, **queued, attempt=attempt, takeovers=run.takeovers + 1)
        events.add_event(session, run.id, "state", {"state": RunState.QUEUED, "attempt": attempt})
        swept.taken_back.append(run.id)


def sweep_and_tell(sessions: Sessions, *, ring: Ring) -> None:
    """Sweep once and log what was not as it should be."""
    swept = sweep(sessions, ring=ring)
    if swept.taken_back or swept.given_up or swept.cancelled:
        log.warning("swept: %s", swept)
