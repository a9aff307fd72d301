"""What a worker writes down while it measures.

Every write checks, in its own transaction and with the run locked, that `owner` still holds the run, and
raises LeaseLost otherwise: a worker that was given up for dead cannot mix its figures into its successor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from gatekeeper.domain.answer import Answer
from gatekeeper.domain.errors import Conflict
from gatekeeper.domain.measurement import EffectiveConfig, Exercise, Measurement, Role, Stop, TokenTrace
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.run import ArmFailure
from gatekeeper.domain.verdict import EngineInfo
from gatekeeper.storage import arms, artifacts, events, runs
from gatekeeper.storage.base import NOW
from gatekeeper.storage.codec import dump_effective, dump_exercise, dump_failure, dump_stop
from gatekeeper.storage.database import Sessions, transaction


def open_arm(
    sessions: Sessions,
    run_id: UUID,
    *,
    owner: str,
    role: Role,
    plan: ArmPlan,
    argv: Sequence[str],
    fingerprint: str | None = None,
) -> int:
    """Begin an arm of the present attempt; return its id. It replaces an earlier one in the same role."""
    with transaction(sessions) as session:
        run = runs.get_held_run(session, run_id, owner)
        return arms.add_arm(session, run, role=role, plan=plan, argv=argv, fingerprint=fingerprint)


def set_engine(
    sessions: Sessions,
    arm_id: int,
    *,
    owner: str,
    engine: EngineInfo | None,
    effective: EffectiveConfig | None,
) -> None:
    """Store which engine answered and what it says it runs with."""
    with transaction(sessions) as session:
        arms.get_held_arm(session, arm_id, owner)
        arms.set_columns(
            session,
            arm_id,
            engine=engine.model_dump(mode="json") if engine else None,
            effective=dump_effective(effective) if effective else None,
        )


def add_measurements(
    sessions: Sessions, arm_id: int, *, owner: str, measurements: Sequence[Measurement]
) -> None:
    """Store measurements. Raises Conflict if one of them is there already."""
    with transaction(sessions) as session:
        arms.get_held_arm(session, arm_id, owner)
        arms.add_measurements(session, arm_id, measurements)


def add_traces(sessions: Sessions, arm_id: int, *, owner: str, traces: Sequence[TokenTrace]) -> None:
    """Store traces. Raises Conflict if one of them is there already."""
    with transaction(sessions) as session:
        arms.get_held_arm(session, arm_id, owner)
        arms.add_traces(session, arm_id, traces)


def add_answers(sessions: Sessions, arm_id: int, *, owner: str, answers: Sequence[Answer]) -> None:
    """Store what an arm said. Raises Conflict if one of the answers is there already."""
    with transaction(sessions) as session:
        arms.get_held_arm(session, arm_id, owner)
        arms.add_answers(session, arm_id, answers)


def add_exercises(sessions: Sessions, arm_id: int, *, owner: str, exercises: Sequence[Exercise]) -> None:
    """Store which modes really happened."""
    with transaction(sessions) as session:
        arm = arms.get_held_arm(session, arm_id, owner)
        added = [dump_exercise(exercise) for exercise in exercises]
        arms.set_columns(session, arm_id, exercises=[*arm.exercises, *added])


def add_skipped(sessions: Sessions, arm_id: int, *, owner: str, skipped: Sequence[tuple[str, str]]) -> None:
    """Store which probes could not run here: (probe, reason)."""
    with transaction(sessions) as session:
        arm = arms.get_held_arm(session, arm_id, owner)
        arms.set_columns(session, arm_id, skipped=[*arm.skipped, *(list(entry) for entry in skipped)])


def add_stop(sessions: Sessions, arm_id: int, *, owner: str, stop: Stop) -> None:
    """Store that a probe was ended on purpose."""
    with transaction(sessions) as session:
        arm = arms.get_held_arm(session, arm_id, owner)
        arms.set_columns(session, arm_id, stops=[*arm.stops, dump_stop(stop)])


def finish_arm(
    sessions: Sessions, arm_id: int, *, owner: str, complete: bool, failure: ArmFailure | None = None
) -> None:
    """End an arm: complete, or not because of `failure`, or not because it was not worth measuring."""
    document = dump_failure(failure) if failure else None
    with transaction(sessions) as session:
        arms.get_held_arm(session, arm_id, owner)
        arms.set_columns(session, arm_id, complete=complete, failure=document, finished_at=NOW)


def use_baseline(
    sessions: Sessions, run_id: UUID, *, owner: str, baseline_arm_id: int, control_arm_id: int
) -> None:
    """Let the complete arms of an earlier run be this attempt's baseline and control."""
    with transaction(sessions) as session:
        run = runs.get_held_run(session, run_id, owner)
        reused: tuple[tuple[Role, int], ...] = (("baseline", baseline_arm_id), ("control", control_arm_id))
        for role, arm_id in reused:
            arm = arms.get_arm(session, arm_id)
            if arm.role != role or not arm.complete:
                raise Conflict(f"arm {arm_id} is not a complete {role}")
            arms.set_role(session, run, role, arm_id)
        payload = {"baseline_arm_id": baseline_arm_id, "control_arm_id": control_arm_id}
        events.add_event(session, run_id, "baseline_reused", payload)


def progress(
    sessions: Sessions, run_id: UUID, *, owner: str, stage: str, arm: Role | None, done: int, total: int
) -> None:
    """Say how far the run is, to pollers and to those who listen. Call it a few times per second at most."""
    with transaction(sessions) as session:
        runs.get_held_run(session, run_id, owner)
        payload = {"stage": stage, "arm": arm, "done": done, "total": total}
        runs.set_columns(session, run_id, progress=payload)
        events.add_event(session, run_id, "progress", payload)


def add_artifact(
    sessions: Sessions,
    run_id: UUID,
    *,
    owner: str,
    role: Role | Literal["run"],
    name: str,
    content: str,
    truncated: bool = False,
) -> None:
    """Store a log or another text of the present attempt, or replace the one of that role and name."""
    with transaction(sessions) as session:
        run = runs.get_held_run(session, run_id, owner)
        artifacts.add_artifact(session, (run_id, run.attempt, role, name), content, truncated=truncated)
