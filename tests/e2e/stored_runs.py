"""Runs as workers leave them: made-up arms, stored through the real services, judged by the real judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

from sqlalchemy import text

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.plan import Plan
from gatekeeper.services import record
from gatekeeper.services.claim import claim
from gatekeeper.services.judge import judge
from gatekeeper.services.models import register_model
from gatekeeper.services.submit import submit
from gatekeeper.settings import Settings
from gatekeeper.storage.database import Sessions, transaction
from tests.unit.web import samples

Measured: TypeAlias = tuple[Plan, Mapping[Role, ArmRecord]]
OWNER = "a-worker"

SET_BACK = (
    """
    update runs set created_at = created_at - :by, started_at = started_at - :by,
        finished_at = finished_at - :by + :took
    where id = :run_id
    """,
    """
    update events set at = at - :by + interval '25 seconds' * place.number
    from (select seq, row_number() over (order by seq) - 1 as number from events where run_id = :run_id) as place
    where events.run_id = :run_id and events.seq = place.seq
    """,
    """
    update arms set started_at = started_at - :by, finished_at = finished_at - :by + interval '98 seconds'
    where run_id = :run_id
    """,
)


@dataclass(frozen=True)
class StoredRuns:
    """The ids of the stored runs, by what became of them."""

    passed: UUID
    failed: UUID
    inconclusive: UUID
    invalid: UUID
    refused: UUID
    error: UUID
    cached: UUID
    window: UUID
    running: UUID
    queued: UUID


def store_runs(sessions: Sessions, settings: Settings) -> StoredRuns:
    """Store one run of every kind, the oldest first."""
    register_model(sessions, samples.MODEL)
    finished: dict[str, Callable[[], Measured]] = {
        "error": samples.broken,
        "refused": samples.refused,
        "invalid": samples.not_applied,
        "inconclusive": samples.inconclusive,
        "cached": samples.prefix_caching,
        "window": samples.window,
        "failed": samples.failing,
        "passed": samples.passing,
    }
    ids = {
        name: finished_run(sessions, settings, make(), hours_ago=30 / (place + 1) ** 2)
        for place, (name, make) in enumerate(finished.items())
    }
    ids["running"] = running_run(sessions, settings, "fp8 under way")
    waiting = samples.change("fp8_e5m2", name="fp8 waiting")
    ids["queued"] = submit(sessions, waiting, settings=settings, ring=_silent).run_id
    return StoredRuns(**ids)


def running_run(sessions: Sessions, settings: Settings, name: str) -> UUID:
    """A run whose candidate is being measured."""
    plan = samples.plan(samples.change(name=name))
    run_id = _claimed(sessions, settings, plan)
    for role in ("baseline", "control"):
        _store_arm(sessions, run_id, samples.arms(plan)[role])
    stored = samples.arms(plan)["candidate"]
    record.open_arm(sessions, run_id, owner=OWNER, role="candidate", plan=stored.plan, argv=stored.argv)
    advance(sessions, run_id, done=4)
    return run_id


def advance(sessions: Sessions, run_id: UUID, *, done: int) -> None:
    """Say that the worker of a running run got on."""
    record.progress(sessions, run_id, owner=OWNER, stage="fidelity", arm="candidate", done=done, total=16)


def finish(sessions: Sessions, run_id: UUID) -> None:
    """Let a running run reach its verdict."""
    _, measured = samples.passing()
    _store_arm(sessions, run_id, measured["candidate"])
    judge(sessions, run_id, owner=OWNER)


def finished_run(sessions: Sessions, settings: Settings, measured: Measured, *, hours_ago: float = 1) -> UUID:
    """A judged run."""
    plan, arms = measured
    run_id = _claimed(sessions, settings, plan)
    for arm in arms.values():
        _store_arm(sessions, run_id, arm)
    judge(sessions, run_id, owner=OWNER)
    _set_back(sessions, run_id, timedelta(hours=hours_ago))
    return run_id


def _claimed(sessions: Sessions, settings: Settings, plan: Plan) -> UUID:
    run_id = submit(sessions, plan.change, settings=settings, ring=_silent).run_id
    assert claim(sessions, run_id, owner=OWNER, lease_seconds=3600) is not None
    return run_id


def _store_arm(sessions: Sessions, run_id: UUID, arm: ArmRecord) -> None:
    arm_id = record.open_arm(sessions, run_id, owner=OWNER, role=arm.role, plan=arm.plan, argv=arm.argv)
    for stage in ("launch", "fidelity", "accuracy", "performance"):
        record.progress(sessions, run_id, owner=OWNER, stage=stage, arm=arm.role, done=1, total=1)
    record.set_engine(sessions, arm_id, owner=OWNER, engine=arm.engine, effective=arm.effective)
    record.add_measurements(sessions, arm_id, owner=OWNER, measurements=arm.measurements)
    record.add_traces(sessions, arm_id, owner=OWNER, traces=arm.traces)
    record.add_answers(sessions, arm_id, owner=OWNER, answers=samples.said(arm.measurements))
    record.add_exercises(sessions, arm_id, owner=OWNER, exercises=arm.exercises)
    log = f"INFO engine of the {arm.role}\n" * 400
    record.add_artifact(sessions, run_id, owner=OWNER, role=arm.role, name="engine.log", content=log)
    record.finish_arm(sessions, arm_id, owner=OWNER, complete=arm.complete, failure=arm.failure)


def _set_back(sessions: Sessions, run_id: UUID, by: timedelta) -> None:
    """Move a run into the past, and stretch its stages from milliseconds to minutes."""
    values = {"by": by, "run_id": run_id, "took": timedelta(minutes=5)}
    with transaction(sessions) as session:
        for statement in SET_BACK:
            session.execute(text(statement), values)


def _silent(*_: object) -> None:
    """No worker listens."""
