"""What a worker writes down, and what a worker that lost its lease cannot."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gatekeeper.domain.errors import Conflict, LeaseLost
from gatekeeper.domain.measurement import EffectiveConfig, Exercise, Stop, TokenTrace
from gatekeeper.domain.run import ArmFailure
from gatekeeper.domain.verdict import EngineInfo
from gatekeeper.services import baselines, history, record
from gatekeeper.services.claim import Claim
from gatekeeper.services.finish import finish_cancelled, finish_error
from gatekeeper.services.judge import judge
from gatekeeper.storage import arms
from gatekeeper.storage.database import transaction
from tests.integration.services.seeds import World, a_measurement, a_report

ENGINE = EngineInfo(name="vllm", version="0.32.0", device="cpu", hardware="AVX-512")
EFFECTIVE = EffectiveConfig(cache_dtype="auto", kv_cache_tokens=46_592, kv_cache_bytes=1_073_741_824)
TRACE = TokenTrace(
    suite="fidelity", mode="cold", item_id="d1", cluster="d1",
    token_ids=[5, 6], token_logprobs=[-0.25, None], top_ids=[[5, 7], [6, 8]],
    top_logprobs=[[-0.25, -1.5], [-0.125, None]], batch=3, context_tokens=512,
)  # fmt: skip
STOP = Stop(suite="fidelity", mode="cold", batches=2, reason="all blocking rules on it passed")
EXERCISE = Exercise(suite="performance", mode="warm", counter="prefix_hits", moved=3.0, expected="moved")


@dataclass(frozen=True)
class Place:
    """A claimed run with an open arm."""

    world: World
    held: Claim
    arm_id: int


@pytest.fixture
def place(world: World) -> Place:
    held = world.claim(world.submit())
    arm_id = record.open_arm(
        world.sessions, held.run_id, owner="worker-1", role="baseline", plan=held.plan.baseline, argv=["vllm"]
    )
    return Place(world, held, arm_id)


def test_judging_gets_exactly_what_was_recorded(place: Place) -> None:
    sessions, arm_id = place.world.sessions, place.arm_id
    record.set_engine(sessions, arm_id, owner="worker-1", engine=ENGINE, effective=EFFECTIVE)
    record.add_measurements(
        sessions, arm_id, owner="worker-1", measurements=[a_measurement(), a_measurement("i2")]
    )
    record.add_traces(sessions, arm_id, owner="worker-1", traces=[TRACE])
    record.add_exercises(sessions, arm_id, owner="worker-1", exercises=[EXERCISE])
    record.add_skipped(sessions, arm_id, owner="worker-1", skipped=[("performance", "no tool")])
    record.add_stop(sessions, arm_id, owner="worker-1", stop=STOP)
    record.finish_arm(sessions, arm_id, owner="worker-1", complete=True)
    with transaction(sessions) as session:
        kept = arms.load_records(session, place.held.run_id, 1)["baseline"]
    assert (kept.engine, kept.effective, kept.plan) == (ENGINE, EFFECTIVE, place.held.plan.baseline)
    assert kept.measurements == (a_measurement(), a_measurement("i2"))
    assert kept.traces == (TRACE,)
    assert kept.exercises == (EXERCISE,)
    assert kept.skipped == (("performance", "no tool"),)
    assert kept.stops == (STOP,)
    assert (kept.complete, kept.failure, kept.argv) == (True, None, ("vllm",))


def test_a_failure_comes_back_as_it_was(place: Place) -> None:
    failure = ArmFailure(role="baseline", kind="died", cause="signal 9", repeated=True)
    record.finish_arm(place.world.sessions, place.arm_id, owner="worker-1", complete=False, failure=failure)
    with transaction(place.world.sessions) as session:
        assert arms.load_records(session, place.held.run_id, 1)["baseline"].failure == failure


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_becomes_null_with_a_reason(place: Place, value: float) -> None:
    record.add_measurements(
        place.world.sessions, place.arm_id, owner="worker-1", measurements=[a_measurement(value=value)]
    )
    with transaction(place.world.sessions) as session:
        (kept,) = arms.load_records(session, place.held.run_id, 1)["baseline"].measurements
    assert (kept.value, kept.reason) == (None, f"the value is {value}")


def test_the_same_item_measured_twice_is_a_conflict_that_leaves_nothing(place: Place) -> None:
    batch = [a_measurement("i2"), a_measurement("i1"), a_measurement("i1")]
    with pytest.raises(Conflict):
        record.add_measurements(place.world.sessions, place.arm_id, owner="worker-1", measurements=batch)
    with transaction(place.world.sessions) as session:
        assert arms.load_records(session, place.held.run_id, 1)["baseline"].measurements == ()


def test_a_second_launch_in_the_same_role_replaces_the_first(place: Place) -> None:
    second = place.world.arm(place.held)
    (arm,) = history.get_run(place.world.sessions, place.held.run_id).arms
    assert arm.arm_id == second


def test_a_log_may_contain_anything_and_may_grow(place: Place) -> None:
    for content in ("first", "first\0second\ud800"):
        record.add_artifact(
            place.world.sessions, place.held.run_id, owner="worker-1", role="baseline", name="engine.log",
            content=content, truncated=True,
        )  # fmt: skip
    run_id = place.held.run_id
    (listed,) = history.list_artifacts(place.world.sessions, run_id)
    text = history.get_artifact(place.world.sessions, run_id, attempt=1, role="baseline", name="engine.log")
    assert text == "first\ufffdsecond?"
    assert (listed.size_bytes, listed.truncated) == (len(text.encode()), True)


def test_progress_shows_in_the_run_and_among_its_events(place: Place) -> None:
    run_id = place.held.run_id
    record.progress(
        place.world.sessions, run_id, owner="worker-1", stage="fidelity", arm="baseline", done=3, total=16
    )
    progress = history.get_run(place.world.sessions, run_id).progress
    assert progress is not None
    assert (progress.stage, progress.done, progress.total) == ("fidelity", 3, 16)
    last = history.events_after(place.world.sessions, run_id, 0).events[-1]
    assert (last.kind, last.payload["done"]) == ("progress", 3)


WRITES: dict[str, Callable[[Place], object]] = {
    "open_arm": lambda at: record.open_arm(
        at.world.sessions,
        at.held.run_id,
        owner="worker-1",
        role="candidate",
        plan=at.held.plan.candidate,
        argv=[],
    ),
    "set_engine": lambda at: record.set_engine(
        at.world.sessions, at.arm_id, owner="worker-1", engine=ENGINE, effective=EFFECTIVE
    ),
    "measurements": lambda at: record.add_measurements(
        at.world.sessions, at.arm_id, owner="worker-1", measurements=[a_measurement()]
    ),
    "traces": lambda at: record.add_traces(at.world.sessions, at.arm_id, owner="worker-1", traces=[TRACE]),
    "exercises": lambda at: record.add_exercises(
        at.world.sessions, at.arm_id, owner="worker-1", exercises=[EXERCISE]
    ),
    "skipped": lambda at: record.add_skipped(
        at.world.sessions, at.arm_id, owner="worker-1", skipped=[("a", "b")]
    ),
    "stopped": lambda at: record.add_stop(at.world.sessions, at.arm_id, owner="worker-1", stop=STOP),
    "finish_arm": lambda at: record.finish_arm(at.world.sessions, at.arm_id, owner="worker-1", complete=True),
    "progress": lambda at: record.progress(
        at.world.sessions, at.held.run_id, owner="worker-1", stage="s", arm=None, done=0, total=1
    ),
    "artifact": lambda at: record.add_artifact(
        at.world.sessions, at.held.run_id, owner="worker-1", role="run", name="n", content="c"
    ),
    "use_baseline": lambda at: record.use_baseline(
        at.world.sessions, at.held.run_id, owner="worker-1", baseline_arm_id=1, control_arm_id=1
    ),
    "keep": lambda at: baselines.keep(
        at.world.sessions,
        at.held.run_id,
        owner="worker-1",
        fingerprint="f",
        baseline_arm_id=1,
        control_arm_id=1,
    ),
    "judge": lambda at: judge(
        at.world.sessions, at.held.run_id, owner="worker-1", decide=lambda _plan, _arms: a_report()
    ),
    "finish_error": lambda at: finish_error(at.world.sessions, at.held.run_id, owner="worker-1", cause="c"),
    "finish_cancelled": lambda at: finish_cancelled(at.world.sessions, at.held.run_id, owner="worker-1"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_worker_that_lost_its_lease_writes_nothing(place: Place, write: Callable[[Place], object]) -> None:
    sessions, run_id = place.world.sessions, place.held.run_id
    with transaction(sessions) as session:
        from gatekeeper.storage.runs import set_columns

        set_columns(session, run_id, lease_expires_at="2020-01-01T00:00:00Z")
    time.sleep(0.01)
    place.world.claim(run_id, "worker-2")
    before = history.get_run(sessions, run_id), history.events_after(sessions, run_id, 0)
    with pytest.raises(LeaseLost):
        write(place)
    assert (history.get_run(sessions, run_id), history.events_after(sessions, run_id, 0)) == before


def test_the_successor_cannot_write_into_the_arms_of_an_earlier_attempt(place: Place) -> None:
    sessions, run_id = place.world.sessions, place.held.run_id
    with transaction(sessions) as session:
        from gatekeeper.storage.runs import set_columns

        set_columns(session, run_id, lease_expires_at="2020-01-01T00:00:00Z")
    place.world.claim(run_id, "worker-2")
    with pytest.raises(LeaseLost):
        record.finish_arm(sessions, place.arm_id, owner="worker-2", complete=True)
