"""From measured arms to a finished run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.errors import LeaseLost
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Outcome, Report, Verdict
from gatekeeper.services import history
from gatekeeper.services.claim import heartbeat
from gatekeeper.services.history import DeltaFilters
from gatekeeper.services.judge import judge
from gatekeeper.storage.database import transaction
from gatekeeper.storage.runs import get_run
from tests.integration.services.seeds import World, a_report


def decide(_plan: Plan, _arms: Mapping[Role, ArmRecord]) -> Report:
    return a_report(Verdict.FAIL)


def test_a_report_finishes_the_run_and_frees_its_lease(world: World) -> None:
    held = world.claim(world.submit())
    judge(world.sessions, held.run_id, owner="worker-1", decide=decide)
    run = history.get_run(world.sessions, held.run_id)
    assert (run.state, run.verdict, run.sentence) == (RunState.FINISHED, Verdict.FAIL, "FAIL: so it is.")
    assert (run.findings, run.deltas) == (a_report(Verdict.FAIL).findings, a_report().deltas)
    assert run.finished_at is not None
    with transaction(world.sessions) as session:
        assert get_run(session, held.run_id).lease_owner is None


def test_deltas_are_stored_flat_with_the_finding_that_speaks_of_them(world: World) -> None:
    held = world.claim(world.submit())
    judge(world.sessions, held.run_id, owner="worker-1", decide=decide)
    page = history.list_deltas(world.sessions, DeltaFilters(), run_id=held.run_id)
    found = {delta.metric: (delta.finding, delta.severity, delta.scheme, delta.model) for delta in page.items}
    assert found == {
        "decode_kl": (Outcome.REGRESSED, "block", "fp8_e4m3", "tiny"),
        "decode_nll": (None, None, "fp8_e4m3", "tiny"),
    }


def test_the_verdict_is_an_event(world: World) -> None:
    held = world.claim(world.submit())
    judge(world.sessions, held.run_id, owner="worker-1", decide=decide)
    batch = history.events_after(world.sessions, held.run_id, 0)
    assert batch.last
    assert [event.payload["state"] for event in batch.events] == ["queued", "running", "finished"]
    assert batch.events[-1].payload["verdict"] == "FAIL"


def test_heartbeats_get_through_while_the_verdict_is_being_found(world: World) -> None:
    held = world.claim(world.submit())

    def decide_slowly(plan: Plan, arms: Mapping[Role, ArmRecord]) -> Report:
        assert heartbeat(world.sessions, held.run_id, owner="worker-1", lease_seconds=60) == "ok"
        return decide(plan, arms)

    judge(world.sessions, held.run_id, owner="worker-1", decide=decide_slowly)


def test_a_run_that_is_taken_over_meanwhile_keeps_its_new_worker(world: World) -> None:
    held = world.claim(world.submit(), lease_seconds=0.0)

    def decide_too_slowly(plan: Plan, arms: Mapping[Role, ArmRecord]) -> Report:
        world.claim(held.run_id, "worker-2")
        return decide(plan, arms)

    with pytest.raises(LeaseLost):
        judge(world.sessions, held.run_id, owner="worker-1", decide=decide_too_slowly)
    run = history.get_run(world.sessions, held.run_id)
    assert (run.state, run.attempt, run.verdict) == (RunState.RUNNING, 2, None)


def test_only_the_arms_of_the_present_attempt_are_judged(world: World) -> None:
    held = world.claim(world.submit(), lease_seconds=0.0)
    world.arm(held, "baseline")
    world.arm(held, "candidate")
    again = world.claim(held.run_id, "worker-2")
    second = world.arm(again, "candidate", owner="worker-2")
    seen: dict[Role, ArmRecord] = {}

    def look(_plan: Plan, arms: Mapping[Role, ArmRecord]) -> Report:
        seen.update(arms)
        return a_report()

    judge(world.sessions, held.run_id, owner="worker-2", decide=look)
    assert set(seen) == {"candidate"}
    assert [arm.arm_id for arm in history.get_run(world.sessions, held.run_id).arms] == [second]


def test_the_real_judge_calls_a_run_without_arms_an_error(world: World) -> None:
    held = world.claim(world.submit())
    assert judge(world.sessions, held.run_id, owner="worker-1").verdict is Verdict.ERROR
