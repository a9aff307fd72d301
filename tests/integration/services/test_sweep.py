"""Nothing stays lying."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from uuid import UUID

from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Verdict
from gatekeeper.services import history
from gatekeeper.services.cancel import cancel
from gatekeeper.services.claim import claim
from gatekeeper.services.periodic import Periodic
from gatekeeper.services.sweep import Swept, sweep, sweep_and_tell
from tests.integration.services.seeds import Bell, World


def sweep_in(world: World, seconds: float) -> Swept:
    """Sweep as if `seconds` had passed."""
    now = datetime.now(UTC) + timedelta(seconds=seconds)
    return sweep(world.sessions, ring=world.bell.ring, now=now)


def test_a_fresh_run_and_a_running_one_are_left_alone(world: World) -> None:
    world.submit()
    world.claim(world.submit())
    assert sweep_in(world, 1) == Swept()


def test_a_run_whose_bell_went_unheard_is_rung_for_again_at_growing_intervals(world: World) -> None:
    run_id = world.submit()
    rings = [second for second in range(0, 300, 10) if sweep_in(world, second + 1).rung]
    assert rings == [30, 70, 150]
    assert world.bell.rung == [run_id] * 4


def test_the_intervals_stop_growing(world: World) -> None:
    world.submit()
    hour = [second for second in range(0, 7_200, 60) if sweep_in(world, second + 1).rung]
    assert max(later - earlier for earlier, later in pairwise(hour)) == 600


def test_a_bell_that_fails_is_tried_at_the_next_interval(world: World) -> None:
    world.bell.is_down = True
    run_id = world.submit()
    assert sweep_in(world, 31).rung == []
    world.bell.is_down = False
    assert sweep_in(world, 65).rung == [run_id]


def test_a_run_whose_worker_is_gone_goes_back_to_the_queue(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    swept = sweep_in(world, 61)
    assert (swept.taken_back, swept.rung) == ([run_id], [run_id])
    run = history.get_run(world.sessions, run_id)
    assert (run.state, run.attempt, run.progress) == (RunState.QUEUED, 2, None)
    assert world.claim(run_id, "worker-2").attempt == 2


def test_after_three_takeovers_the_run_is_an_error_that_says_so(world: World) -> None:
    run_id = world.submit()
    for _ in range(3):
        world.claim(run_id)
        assert sweep_in(world, 61).taken_back == [run_id]
    world.claim(run_id)
    assert sweep_in(world, 61).given_up == [run_id]
    run = history.get_run(world.sessions, run_id)
    assert (run.state, run.verdict) == (RunState.FINISHED, Verdict.ERROR)
    assert run.sentence == "ERROR: 4 workers in a row stopped renewing their lease on this run"


def test_workers_that_take_over_by_themselves_count_as_well(world: World) -> None:
    run_id = world.submit()
    for attempt in range(1, 5):
        assert world.claim(run_id, f"worker-{attempt}", lease_seconds=0).attempt == attempt
        time.sleep(0.01)
    assert claim(world.sessions, run_id, owner="worker-5", lease_seconds=60) is None
    assert sweep_in(world, 0).given_up == [run_id]


def test_a_cancelled_run_whose_worker_is_gone_is_cancelled(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    cancel(world.sessions, run_id)
    assert sweep_in(world, 61).cancelled == [run_id]
    assert history.get_run(world.sessions, run_id).state is RunState.CANCELLED


def test_two_sweepers_at_once_take_a_run_back_once(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    start = threading.Barrier(4)

    def contend(_: int) -> Swept:
        start.wait()
        return sweep_in(world, 61)

    with ThreadPoolExecutor(4) as pool:
        taken = [run for swept in pool.map(contend, range(4)) for run in swept.taken_back]
    assert taken == [run_id]
    assert history.get_run(world.sessions, run_id).attempt == 2


def test_the_sweeper_works_in_the_background_and_stops(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id, lease_seconds=0)
    heard = threading.Event()

    class Listening(Bell):
        def ring(self, run_id: UUID, device: str) -> None:
            super().ring(run_id, device)  # type: ignore[arg-type]
            heard.set()

    sweeper = Periodic(
        "sweeper", partial(sweep_and_tell, world.sessions, ring=Listening().ring), seconds=0.01
    )
    sweeper.start()
    assert heard.wait(10)
    sweeper.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "gatekeeper-sweeper"]
