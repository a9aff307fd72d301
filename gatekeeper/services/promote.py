"""Promote a configuration that passed: it becomes its model's reference, and its flags are what to roll out.

A later change may say `baseline: promoted` to be held against the reference's reuse, scheduling and engine arguments.
Its cache stays a 16-bit full one all the same: small losses that each pass would add up unseen.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from gatekeeper.domain.change import Change
from gatekeeper.domain.engine_flags import START, engine_flags
from gatekeeper.domain.errors import Conflict, FieldProblem, InvalidInput, NotFound
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.verdict import Report, Verdict
from gatekeeper.services.views import View
from gatekeeper.storage import arms, promotions, runs, waivers
from gatekeeper.storage.codec import load_plan
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.tables import PromotionRow, RunRow

PROMOTED: Final = "promoted"
"""What a change's `baseline` may be instead of a configuration."""
KEPT: Final = ("reuse", "scheduling", "engine_args")
"""What a baseline takes from it."""


class NotPassed(Conflict):
    """Only a run whose verdict is PASS is promoted."""


class ServesNobody(Conflict):
    """The reference engine answers whether a model survives a method; there is nothing of it to roll out."""


class PromotionView(View):
    """A promoted configuration.

    `flags`: what the configuration comes to, to be added to a deployment's own; `measured_argv`: the whole command that
    passed, with the lengths that its suite needed.
    """

    id: int
    run_id: UUID
    model: str
    config: dict[str, Any]
    flags: tuple[str, ...]
    command: str
    measured_argv: tuple[str, ...]
    engine: dict[str, Any] | None
    promoted_at: datetime


def promote(sessions: Sessions, run_id: UUID) -> PromotionView:
    """Make the candidate of a run its model's reference.

    Raises NotFound, NotPassed for anything but PASS, and ServesNobody for the reference engine.
    """
    with transaction(sessions) as session:
        run = runs.get_run(session, run_id, lock=True)
        _refuse_what_did_not_pass(session, run)
        plan = load_plan(run.plan)
        flags = _flags(plan)
        row = promotions.add_promotion(
            session,
            run_id=run_id,
            model=run.model,
            config=plan.candidate.config.model_dump(mode="json", exclude_none=True),
            flags=list(flags),
            engine=(run.report or {}).get("engine"),
        )
        return _view(session, row)


def list_references(sessions: Sessions) -> list[PromotionView]:
    """The reference of every model that has one."""
    with transaction(sessions) as session:
        return [_view(session, row) for row in promotions.list_references(session)]


def get_reference(sessions: Sessions, model: str) -> PromotionView:
    """The reference of a model. Raises NotFound."""
    with transaction(sessions) as session:
        row = promotions.find_reference(session, model)
        if row is None:
            raise NotFound(f"a promoted configuration of {model!r}")
        return _view(session, row)


def with_reference(sessions: Sessions, document: dict[str, Any] | Change) -> dict[str, Any] | Change:
    """A change's document with the reference for `baseline: promoted`. Raises InvalidInput if the model has none."""
    if isinstance(document, Change) or document.get("baseline") != PROMOTED:
        return document
    with transaction(sessions) as session:
        row = promotions.find_reference(session, str(document.get("model")))
    if row is None:
        problem = f"nothing of {document.get('model')!r} was promoted yet"
        raise InvalidInput([FieldProblem(field="baseline", problem=problem, allowed="a configuration")])
    return document | {"baseline": {key: row.config[key] for key in KEPT if key in row.config}}


def _refuse_what_did_not_pass(session: Session, run: RunRow) -> None:
    if run.verdict != Verdict.PASS:
        raise NotPassed(f"run {run.id} is {run.verdict or run.state}; only PASS is promoted")
    now = waivers.database_time(session)
    rests_on = Report.model_validate(run.report, extra="ignore").waivers
    for revoked in waivers.list_revoked(session, [waiver.id for waiver in rests_on]):
        raise NotPassed(f"the waiver of {revoked.metric} by {revoked.owner} was revoked")
    for waiver in rests_on:
        if waiver.expires_at <= now:
            raise NotPassed(f"the waiver of {waiver.metric} by {waiver.owner} has expired")


def _flags(plan: Plan) -> tuple[str, ...]:
    arm = plan.candidate
    if arm.engine == "reference":
        raise ServesNobody(f"it passed on the reference engine: {plan.engine_reason}")
    return engine_flags(arm.engine, arm.config, shape=arm.model.shape)


def _view(session: Session, row: PromotionRow) -> PromotionView:
    run = runs.get_run(session, row.run_id)
    candidates = [arm for role, arm in arms.list_arms(session, run.id, run.attempt) if role == "candidate"]
    return PromotionView(
        id=row.id,
        run_id=row.run_id,
        model=row.model,
        config=row.config,
        flags=tuple(row.flags),
        command=shlex.join([*START[load_plan(run.plan).candidate.engine], row.model, *row.flags]),
        measured_argv=tuple(candidates[0].argv) if candidates else (),
        engine=row.engine,
        promoted_at=row.promoted_at,
    )
