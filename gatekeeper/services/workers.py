"""What workers do now: the runs that they hold, and what waits for them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from gatekeeper.services.views import Progress, View
from gatekeeper.storage import queries
from gatekeeper.storage.database import Sessions, transaction


class LeaseView(View):
    """A run that a worker holds. Past `expires_at` another one may take it over."""

    worker: str
    run_id: UUID
    name: str
    device: str
    attempt: int
    started_at: datetime | None
    expires_at: datetime
    progress: Progress | None


class QueueView(View):
    """The runs that wait for one kind of device, and since when the first of them does."""

    device: str
    waiting: int
    since: datetime


def list_leases(sessions: Sessions) -> tuple[LeaseView, ...]:
    """The workers that hold a run."""
    with transaction(sessions) as session:
        return tuple(
            LeaseView(
                worker=run.lease_owner,
                run_id=run.id,
                name=run.label,
                device=run.device,
                attempt=run.attempt,
                started_at=run.started_at,
                expires_at=run.lease_expires_at,
                progress=Progress.model_validate(run.progress) if run.progress else None,
            )
            for run in queries.list_leases(session)
            if run.lease_owner is not None and run.lease_expires_at is not None
        )


def list_queues(sessions: Sessions) -> tuple[QueueView, ...]:
    """What waits, by kind of device."""
    with transaction(sessions) as session:
        return tuple(
            QueueView(device=device, waiting=count, since=since)
            for device, count, since in queries.count_queued(session)
        )
