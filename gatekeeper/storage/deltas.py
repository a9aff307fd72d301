"""The deltas of finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert
from sqlalchemy.orm import Session

from gatekeeper.domain.verdict import Delta, Finding, Report
from gatekeeper.storage.tables import DeltaRow, RunRow


def add_deltas(session: Session, run: RunRow, report: Report) -> None:
    """Add the deltas of a run's report, each with the finding that speaks of it."""
    owner = {
        "run_id": run.id,
        "model": run.model,
        "scheme": run.scheme,
        "eviction": run.eviction,
        "label": run.label,
    }
    rows = [owner | _values(delta, _finding(delta, report.findings)) for delta in report.deltas]
    if rows:
        session.connection().execute(insert(DeltaRow), rows)


def delete_deltas(session: Session, run_id: UUID) -> None:
    """Remove the deltas of a run that is to be measured again."""
    session.execute(delete(DeltaRow).where(DeltaRow.run_id == run_id))


def _values(delta: Delta, finding: Finding | None) -> dict[str, Any]:
    document = delta.model_dump(mode="json")
    asked = ("metric", "suite", "mode", "group", "estimate", "lower", "upper")
    return {name: document[name] for name in asked} | {
        "document": document,
        "finding": finding.outcome.value if finding else None,
        "severity": finding.rule.severity if finding else None,
        "detail": finding.detail if finding else None,
    }


def _finding(delta: Delta, findings: Sequence[Finding]) -> Finding | None:
    return next((finding for finding in findings if finding.delta == delta), None)
