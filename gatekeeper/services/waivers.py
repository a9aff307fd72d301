"""Waivers: grant one on a finished run, revoke it, and judge with those in force.

Granting one judges the run again at once from what was measured, revoking it every run that rests on it: nobody has to
measure twice to learn what an exception comes to. Later runs of the same change find it in force until it expires.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, ValidationError
from sqlalchemy.orm import Session

from gatekeeper.domain.base import Closed
from gatekeeper.domain.change_key import change_key
from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.findings import EXCUSABLE
from gatekeeper.domain.judge import judge
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.verdict import Finding, Outcome, Report
from gatekeeper.domain.waiver import LONGEST, Waiver, Words, expiry_problem
from gatekeeper.services.finish import NotJudged, replace_report, was_judged
from gatekeeper.services.views import View
from gatekeeper.storage import arms, runs, waivers
from gatekeeper.storage.base import NOW, Json
from gatekeeper.storage.codec import load_plan
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.tables import RunRow, WaiverRow

log = logging.getLogger(__name__)

Instant = Annotated[
    datetime, AfterValidator(lambda time: time if time.tzinfo is not None else time.replace(tzinfo=UTC))
]
"""A point in time; without an offset it is UTC."""


class WaiverDocument(Closed):
    """What a caller says: who answers for which metric's exception, why, and until when (UTC without an offset)."""

    metric: Words
    owner: Words
    reason: Words
    expires_at: Instant


class WaiverView(View):
    """A waiver. `run_id`: the run on which it was granted; it holds for every run of the same change."""

    id: int
    run_id: UUID
    metric: str
    owner: str
    reason: str
    granted_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    in_force: bool


def plan_in_force(session: Session, document: Json) -> Plan:
    """A stored plan with the waivers that excuse something of its change now."""
    plan = load_plan(document)
    found = waivers.list_in_force(session, change_key(plan))
    return plan.model_copy(update={"waivers": tuple(_waiver(row) for row in found)})


def grant(sessions: Sessions, run_id: UUID, document: Mapping[str, Any]) -> WaiverView:
    """Excuse a metric of a finished run's change and judge the run again.

    Raises NotFound, NotJudged, and InvalidInput naming the field.
    """
    asked = _read(document)
    with transaction(sessions) as session:
        run = _judged_run(session, run_id)
        now = waivers.database_time(session)
        _refuse_unfit(asked, Report.model_validate(run.report, extra="ignore"), now)
        plan = load_plan(run.plan)
        row = waivers.add_waiver(session, run_id=run_id, change_key=change_key(plan), **asked.model_dump())
        _judge_again(session, run, "waived", row)
        return _view(row, now)


def revoke(sessions: Sessions, waiver_id: int) -> WaiverView:
    """End a waiver now and judge every run again whose report rests on it. Raises NotFound and Conflict.

    A run whose plan this version no longer reads keeps its report; it is not promoted either.
    """
    with transaction(sessions) as session:
        row = waivers.get_unrevoked(session, waiver_id)
        row.revoked_at = NOW
        session.flush()
        session.refresh(row)
        for run in runs.list_resting_on(session, waiver_id):
            try:
                _judge_again(session, run, "waiver_revoked", row)
            except ValidationError as error:
                log.warning("run %s keeps a report with a revoked waiver: %s", run.id, error)
        return _view(row, waivers.database_time(session))


def list_waivers(
    sessions: Sessions, *, run_id: UUID | None = None, ended: bool = False, limit: int = 200
) -> list[WaiverView]:
    """The waivers granted on a run, or the newest of all; of all, `ended` adds those that hold no more."""
    with transaction(sessions) as session:
        if run_id is not None:
            runs.get_head(session, run_id)
        found = (
            waivers.list_all(session, ended=ended, limit=limit)
            if run_id is None
            else waivers.list_of_run(session, run_id)
        )
        now = waivers.database_time(session)
        return [_view(row, now) for row in found]


def excusable_metrics(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The metrics that a waiver can excuse, or does; never one whose only findings have no figure."""
    outcomes = (*EXCUSABLE, Outcome.WAIVED)
    found = (f.metric for f in findings if f.rule.severity == "block" and f.outcome in outcomes and f.delta)
    return tuple(dict.fromkeys(found))


def _read(document: Mapping[str, Any]) -> WaiverDocument:
    try:
        return WaiverDocument.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(field_problems(error, WaiverDocument)) from error


def _judged_run(session: Session, run_id: UUID) -> RunRow:
    run = runs.get_run(session, run_id, lock=True)
    if not was_judged(run.report):
        raise NotJudged(f"run {run_id} is {run.state}" + (f": {run.sentence}" if run.sentence else ""))
    return run


def _refuse_unfit(asked: WaiverDocument, report: Report, now: datetime) -> None:
    problems = []
    allowed = excusable_metrics(report.findings)
    if asked.metric not in allowed:
        can = ", ".join(allowed) or "none: no blocking rule of this run regressed or stayed open"
        problem = f"no blocking rule on {asked.metric} regressed or stayed open here"
        problems.append(FieldProblem(field="metric", problem=problem, allowed=can))
    late = expiry_problem(asked.expires_at, now)
    if late:
        allowed_until = f"a time within {LONGEST.days} days from now"
        problems.append(FieldProblem(field="expires_at", problem=late, allowed=allowed_until))
    if problems:
        raise InvalidInput(problems)


def _judge_again(
    session: Session, run: RunRow, kind: Literal["waived", "waiver_revoked"], row: WaiverRow
) -> None:
    report = judge(plan_in_force(session, run.plan), arms.load_records(session, run.id, run.attempt))
    payload = {"metric": row.metric, "owner": row.owner, "waiver": row.id}
    replace_report(session, run, report, kind, payload)


def _waiver(row: WaiverRow) -> Waiver:
    return Waiver(**{name: getattr(row, name) for name in Waiver.model_fields})


def _view(row: WaiverRow, now: datetime) -> WaiverView:
    names = WaiverView.model_fields.keys() - {"in_force"}
    in_force = row.revoked_at is None and row.expires_at > now
    return WaiverView(in_force=in_force, **{name: getattr(row, name) for name in names})
