"""From rows to views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.verdict import Delta, EngineInfo, Report
from gatekeeper.services.views import ArmView, DeltaView, EventView, RunDetail, RunSummary
from gatekeeper.storage.arm_tables import ArmRow
from gatekeeper.storage.base import Json
from gatekeeper.storage.queries import ListedRun
from gatekeeper.storage.tables import DeltaRow, EventRow, RunRow


def run_summary(listed: ListedRun) -> RunSummary:
    """A run in a list."""
    return RunSummary.model_validate(
        _summary(listed.run, baseline=listed.baseline, candidate=listed.candidate, ahead=listed.ahead)
    )


def run_detail(run: RunRow, arms: Sequence[tuple[str, ArmRow]], *, ahead: int | None) -> RunDetail:
    """A run with its report and the arms of its present attempt, and how many are queued before it.

    Keys that reports had once and have no more are passed over: old runs stay readable.
    """
    report: dict[str, Any] = {}
    if run.report is not None:
        report = report_fields(Report.model_validate(run.report, extra="ignore"))
    configs = {role: run.plan[role]["config"] for role in ("baseline", "candidate")}
    return RunDetail(
        **_summary(run, **configs, ahead=ahead) | report,
        suite=run.plan["suite"]["name"],
        policy=run.plan["policy"]["name"],
        change=run.plan["change"],
        plan=run.plan,
        arms=tuple(_arm(run, role, arm) for role, arm in arms),
    )


def candidate_name(baseline: Json, candidate: Json) -> str:
    """What a stored candidate is called: by what differs from its baseline."""
    return KVConfig.model_validate(candidate).label_against(KVConfig.model_validate(baseline))


def report_fields(report: Report) -> dict[str, Any]:
    """What a run shows of its report."""
    return {name: getattr(report, name) for name in Report.model_fields if name in RunDetail.model_fields}


def delta(row: DeltaRow) -> DeltaView:
    """A delta of one run."""
    own = DeltaView.model_fields.keys() - Delta.model_fields.keys()
    return DeltaView.model_validate(row.document | {name: getattr(row, name) for name in own}, extra="ignore")


def event(row: EventRow) -> EventView:
    """An event."""
    return EventView(seq=row.seq, at=row.at, kind=row.kind, payload=row.payload)


def _summary(run: RunRow, *, baseline: Json, candidate: Json, ahead: int | None) -> dict[str, Any]:
    renamed = {
        "run_id": run.id,
        "name": run.label,
        "candidate": candidate_name(baseline, candidate),
        "ahead": ahead,
    }
    return renamed | {name: getattr(run, name) for name in RunSummary.model_fields if name not in renamed}


def _arm(run: RunRow, role: str, arm: ArmRow) -> ArmView:
    return ArmView(
        arm_id=arm.id,
        role=role,
        run_id=arm.run_id,
        attempt=arm.attempt,
        reused=(arm.run_id, arm.attempt) != (run.id, run.attempt),
        argv=tuple(arm.argv),
        engine=EngineInfo.model_validate(arm.engine) if arm.engine is not None else None,
        effective=arm.effective,
        exercises=tuple(arm.exercises),
        skipped=tuple((probe, reason) for probe, reason in arm.skipped),
        failure=arm.failure,
        complete=arm.complete,
        fingerprint=arm.fingerprint,
        started_at=arm.started_at,
        finished_at=arm.finished_at,
    )
