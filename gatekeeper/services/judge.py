"""Judge a measured run and finish it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from gatekeeper import tracing
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.judge import judge as judge_arms
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.verdict import Report
from gatekeeper.services.finish import end_report
from gatekeeper.services.waivers import plan_in_force
from gatekeeper.storage import arms, runs
from gatekeeper.storage.database import Sessions, transaction

Decide: TypeAlias = Callable[[Plan, Mapping[Role, ArmRecord]], Report]


def judge(sessions: Sessions, run_id: UUID, *, owner: str, decide: Decide = judge_arms) -> Report:
    """Judge the present attempt by its own policy and the waivers in force, and finish it. Raises LeaseLost.

    The run's row is locked only at the end: deciding takes seconds, in which the heartbeat must get through.
    """
    with tracing.span("judge", run_id=run_id), transaction(sessions) as session:
        run = runs.get_run(session, run_id)
        report = decide(plan_in_force(session, run.plan), arms.load_records(session, run_id, run.attempt))
        session.expire(run)
        end_report(session, runs.get_held_run(session, run_id, owner), report)
        tracing.note(verdict=report.verdict)
    return report
