"""Waivers: who excused which metric of which change, until when."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gatekeeper.domain.errors import Conflict, NotFound
from gatekeeper.storage.base import NOW
from gatekeeper.storage.tables import WaiverRow


def add_waiver(session: Session, **values: Any) -> WaiverRow:
    """Add a waiver with these columns."""
    row = WaiverRow(**values)
    session.add(row)
    session.flush()
    session.refresh(row)
    return row


def list_in_force(session: Session, change_key: str) -> list[WaiverRow]:
    """The waivers of a change that have neither expired nor been revoked."""
    in_force = (WaiverRow.revoked_at.is_(None), WaiverRow.expires_at > NOW)
    statement = select(WaiverRow).where(WaiverRow.change_key == change_key, *in_force)
    return list(session.scalars(statement.order_by(WaiverRow.id)))


def list_of_run(session: Session, run_id: UUID) -> list[WaiverRow]:
    """All waivers that were granted on a run, the oldest first."""
    statement = select(WaiverRow).where(WaiverRow.run_id == run_id).order_by(WaiverRow.id)
    return list(session.scalars(statement))


def list_all(session: Session, *, ended: bool, limit: int) -> list[WaiverRow]:
    """The newest waivers; `ended` adds those that expired or were revoked."""
    statement = select(WaiverRow).order_by(WaiverRow.id.desc()).limit(limit)
    if not ended:
        statement = statement.where(WaiverRow.revoked_at.is_(None), WaiverRow.expires_at > NOW)
    return list(session.scalars(statement))


def list_revoked(session: Session, ids: Collection[int]) -> list[WaiverRow]:
    """Those of these waivers that were revoked."""
    statement = select(WaiverRow).where(WaiverRow.id.in_(ids), WaiverRow.revoked_at.is_not(None))
    return list(session.scalars(statement.order_by(WaiverRow.id)))


def get_unrevoked(session: Session, waiver_id: int) -> WaiverRow:
    """A waiver, locked. Raises NotFound, and Conflict if it was revoked."""
    statement = select(WaiverRow).where(WaiverRow.id == waiver_id).with_for_update()
    row = session.scalars(statement).one_or_none()
    if row is None:
        raise NotFound(f"waiver {waiver_id}")
    if row.revoked_at is not None:
        raise Conflict(f"waiver {waiver_id} was revoked")
    return row


def database_time(session: Session) -> datetime:
    """The database's clock."""
    now: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    return now
