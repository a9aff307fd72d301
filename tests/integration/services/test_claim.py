"""One worker at a time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from gatekeeper.domain.run import ArmFailure, RunState
from gatekeeper.services import history, record
from gatekeeper.services.cancel import cancel
from gatekeeper.services.claim import Claim, claim, heartbeat
from gatekeeper.services.finish import finish_error
from tests.integration.services.seeds import World

WORKERS = 12


def test_of_many_workers_exactly_one_gets_a_queued_run(world: World) -> None:
    run_id = world.submit()
    winners = _race(world, run_id)
    assert len(winners) == 1
    assert winners[0].attempt == 1


def test_of_many_workers_exactly_one_takes_over_an_expired_run(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id, lease_seconds=0.0)
    time.sleep(0.01)
    winners = _race(world, run_id)
    assert [winner.attempt for winner in winners] == [2]


def _race(world: World, run_id: object) -> list[Claim]:
    start = threading.Barrier(WORKERS)

    def contend(number: int) -> Claim | None:
        start.wait()
        return claim(world.sessions, run_id, owner=f"worker-{number}", lease_seconds=60)  # type: ignore[arg-type]

    with ThreadPoolExecutor(WORKERS) as pool:
        return [held for held in pool.map(contend, range(WORKERS)) if held is not None]


def test_a_run_under_a_lease_is_not_given_away(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    assert claim(world.sessions, run_id, owner="worker-2", lease_seconds=60) is None


def test_nobody_gets_what_is_over_or_unknown(world: World) -> None:
    cancelled, finished = world.submit(), world.submit()
    cancel(world.sessions, cancelled)
    world.claim(finished)
    finish_error(world.sessions, finished, owner="worker-1", cause="no device")
    for run_id in (cancelled, finished, uuid4()):
        assert claim(world.sessions, run_id, owner="worker-2", lease_seconds=60) is None


def test_a_heartbeat_keeps_the_lease(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id, lease_seconds=0.0)
    assert heartbeat(world.sessions, run_id, owner="worker-1", lease_seconds=60) == "ok"
    assert claim(world.sessions, run_id, owner="worker-2", lease_seconds=60) is None


def test_a_heartbeat_of_a_worker_that_was_replaced_says_lost(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id, lease_seconds=0.0)
    time.sleep(0.01)
    world.claim(run_id, "worker-2")
    assert heartbeat(world.sessions, run_id, owner="worker-1", lease_seconds=60) == "lost"
    assert heartbeat(world.sessions, run_id, owner="worker-2", lease_seconds=60) == "ok"


def test_a_heartbeat_brings_word_of_a_cancellation(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    cancel(world.sessions, run_id)
    assert history.get_run(world.sessions, run_id).state is RunState.RUNNING
    assert heartbeat(world.sessions, run_id, owner="worker-1", lease_seconds=60) == "cancelled"


def test_a_claim_names_the_arms_that_died_in_earlier_attempts(world: World) -> None:
    run_id = world.submit()
    held = world.claim(run_id, lease_seconds=0.0)
    for role, kind in (("candidate", "died"), ("baseline", "refused")):
        plan = held.plan.candidate
        arm_id = record.open_arm(world.sessions, run_id, owner="worker-1", role=role, plan=plan, argv=[])  # type: ignore[arg-type]
        failure = ArmFailure(role=role, kind=kind, cause="it was gone")  # type: ignore[arg-type]
        record.finish_arm(world.sessions, arm_id, owner="worker-1", complete=False, failure=failure)
    assert world.claim(run_id, "worker-2").dead_roles == {"candidate"}
