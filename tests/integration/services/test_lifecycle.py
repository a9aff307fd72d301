"""Cancelling and trying again."""

from __future__ import annotations

from uuid import uuid4

import pytest

from gatekeeper.domain.errors import Conflict, NotFound
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Verdict
from gatekeeper.services import history
from gatekeeper.services.cancel import cancel
from gatekeeper.services.finish import finish_cancelled, finish_error
from gatekeeper.services.history import DeltaFilters
from gatekeeper.services.judge import judge
from gatekeeper.services.retry import retry
from tests.integration.services.seeds import World, a_report


def test_a_queued_run_is_cancelled_at_once_and_again_is_no_error(world: World) -> None:
    run_id = world.submit()
    cancel(world.sessions, run_id)
    cancel(world.sessions, run_id)
    run = history.get_run(world.sessions, run_id)
    assert (run.state, run.verdict) == (RunState.CANCELLED, None)
    assert history.events_after(world.sessions, run_id, 0).last


def test_a_running_run_is_cancelled_by_its_worker(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    cancel(world.sessions, run_id)
    cancel(world.sessions, run_id)
    asked = history.get_run(world.sessions, run_id)
    assert (asked.state, asked.cancel_requested) == (RunState.RUNNING, True)
    finish_cancelled(world.sessions, run_id, owner="worker-1")
    assert history.get_run(world.sessions, run_id).state is RunState.CANCELLED


def test_a_finished_run_is_not_cancelled(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    finish_error(world.sessions, run_id, owner="worker-1", cause="no device")
    with pytest.raises(Conflict, match="ERROR"):
        cancel(world.sessions, run_id)


def test_an_infrastructure_failure_is_an_error_with_its_cause(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    finish_error(world.sessions, run_id, owner="worker-1", cause="no device is free")
    run = history.get_run(world.sessions, run_id)
    assert (run.verdict, run.sentence) == (Verdict.ERROR, "ERROR: no device is free")


def test_an_error_is_tried_again_from_the_start(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    judge(world.sessions, run_id, owner="worker-1", decide=lambda _plan, _arms: a_report(Verdict.ERROR))
    retry(world.sessions, run_id, ring=world.bell.ring)
    run = history.get_run(world.sessions, run_id)
    assert (run.state, run.attempt, run.verdict, run.sentence) == (RunState.QUEUED, 2, None, None)
    assert (run.started_at, run.finished_at, run.findings) == (None, None, ())
    assert history.list_deltas(world.sessions, DeltaFilters()).items == ()
    assert world.bell.rung == [run_id, run_id]
    assert world.claim(run_id).attempt == 2


def test_a_cancelled_run_is_tried_again_and_not_cancelled_by_the_old_request(world: World) -> None:
    run_id = world.submit()
    world.claim(run_id)
    cancel(world.sessions, run_id)
    finish_cancelled(world.sessions, run_id, owner="worker-1")
    retry(world.sessions, run_id, ring=world.bell.ring)
    assert not history.get_run(world.sessions, run_id).cancel_requested
    assert world.claim(run_id).attempt == 2


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.ERROR])
def test_a_verdict_on_the_change_stands(world: World, verdict: Verdict) -> None:
    run_id = world.submit()
    world.claim(run_id)
    judge(world.sessions, run_id, owner="worker-1", decide=lambda _plan, _arms: a_report(verdict))
    with pytest.raises(Conflict, match=verdict):
        retry(world.sessions, run_id, ring=world.bell.ring)


def test_a_run_in_progress_is_not_retried(world: World) -> None:
    run_id = world.submit()
    with pytest.raises(Conflict, match="queued"):
        retry(world.sessions, run_id, ring=world.bell.ring)


def test_an_unknown_run_is_not_found(world: World) -> None:
    for verb in (cancel, history.get_run, history.list_artifacts):
        with pytest.raises(NotFound):
            verb(world.sessions, uuid4())
    with pytest.raises(NotFound):
        retry(world.sessions, uuid4(), ring=world.bell.ring)
    with pytest.raises(NotFound):
        history.events_after(world.sessions, uuid4(), 0)
