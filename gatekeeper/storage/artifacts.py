"""Logs and other texts of a run."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from gatekeeper.domain.errors import NotFound
from gatekeeper.storage.base import NOW
from gatekeeper.storage.tables import ArtifactRow

Key = tuple[UUID, int, str, str]
"""Run, attempt, role, name."""


def add_artifact(session: Session, key: Key, content: str, *, truncated: bool) -> None:
    """Store a text, or replace the one of that key (a log that has grown)."""
    run_id, attempt, role, name = key
    values = {"content": content, "truncated": truncated, "created_at": NOW}
    statement = insert(ArtifactRow).values(run_id=run_id, attempt=attempt, role=role, name=name, **values)
    keys = [ArtifactRow.run_id, ArtifactRow.attempt, ArtifactRow.role, ArtifactRow.name]
    session.execute(statement.on_conflict_do_update(index_elements=keys, set_=values))


def list_artifacts(session: Session, run_id: UUID) -> list[tuple[int, str, str, int, bool]]:
    """(attempt, role, name, size in bytes, truncated) of a run's artifacts, without their content."""
    size = func.octet_length(ArtifactRow.content, type_=BigInteger)
    columns = select(ArtifactRow.attempt, ArtifactRow.role, ArtifactRow.name, size, ArtifactRow.truncated)
    order = (ArtifactRow.attempt, ArtifactRow.role, ArtifactRow.name)
    rows = session.execute(columns.where(ArtifactRow.run_id == run_id).order_by(*order))
    return [(attempt, role, name, size, truncated) for attempt, role, name, size, truncated in rows]


def get_artifact(session: Session, key: Key) -> ArtifactRow:
    """One artifact with its content. Raises NotFound."""
    run_id, attempt, role, name = key
    row = session.get(ArtifactRow, {"run_id": run_id, "attempt": attempt, "role": role, "name": name})
    if row is None:
        raise NotFound(f"artifact {role}/{attempt}/{name} of run {run_id}")
    return row
