"""The few figures that a list shows of each run, in one query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from sqlalchemy import select

from gatekeeper.domain.verdict import Outcome
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.tables import DeltaRow

METRICS: Final = ("decode_kl", "kv_capacity_ratio", "throughput_ratio")


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """One figure of one run, with the outcome of the rule that speaks of it, if one does."""

    estimate: float
    lower: float | None
    upper: float | None
    finding: Outcome | None
    severity: str | None


Headlines: TypeAlias = Mapping[tuple[UUID, str], Headline]
"""By run and metric."""


def load(sessions: Sessions, run_ids: Sequence[UUID]) -> Headlines:
    """The headline figures of these runs, over all items of the cold mode."""
    wanted = (
        DeltaRow.run_id.in_(run_ids),
        DeltaRow.metric.in_(METRICS),
        DeltaRow.group == "all",
        DeltaRow.mode == "cold",
    )
    columns = select(
        DeltaRow.run_id, DeltaRow.metric, DeltaRow.estimate, DeltaRow.lower, DeltaRow.upper,
        DeltaRow.finding, DeltaRow.severity,
    )  # fmt: skip
    if not run_ids:
        return {}
    with transaction(sessions) as session:
        rows = session.execute(columns.where(*wanted)).all()
    return {
        (row.run_id, row.metric): Headline(
            estimate=row.estimate,
            lower=row.lower,
            upper=row.upper,
            finding=Outcome(row.finding) if row.finding else None,
            severity=row.severity,
        )
        for row in rows
    }
