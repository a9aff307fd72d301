"""What happened to a run, in order."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from gatekeeper.storage.base import Json
from gatekeeper.storage.tables import EventRow


def add_event(session: Session, run_id: UUID, kind: str, payload: Json) -> None:
    """Add an event. The caller has updated the run's row in this transaction; see `EventRow`."""
    session.execute(insert(EventRow).values(run_id=run_id, kind=kind, payload=payload))


def list_events(session: Session, run_id: UUID, *, after: int, limit: int) -> list[EventRow]:
    """The events of a run after sequence number `after`, oldest first."""
    statement = select(EventRow).where(EventRow.run_id == run_id, EventRow.seq > after)
    return list(session.scalars(statement.order_by(EventRow.seq).limit(limit)))
