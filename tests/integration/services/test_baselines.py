"""Measured once, used again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from gatekeeper.domain.errors import Conflict, NotFound
from gatekeeper.services import baselines, history, record
from gatekeeper.storage import arms
from gatekeeper.storage.database import transaction
from tests.integration.services.seeds import World, a_measurement

MONTH = timedelta(days=30)
PRINT = "f" * 64


def kept(world: World, owner: str = "worker-1") -> tuple[int, int]:
    """Measure a baseline in a run of its own and keep it."""
    held = world.claim(world.submit(), owner)
    baseline, control = (world.arm(held, role, owner=owner) for role in ("baseline", "control"))
    baselines.keep(
        world.sessions,
        held.run_id,
        owner=owner,
        fingerprint=PRINT,
        baseline_arm_id=baseline,
        control_arm_id=control,
    )
    return baseline, control


def test_an_unknown_fingerprint_has_no_baseline(world: World) -> None:
    assert baselines.find(world.sessions, PRINT, max_age=MONTH) is None


def test_a_kept_baseline_is_found_until_it_is_too_old_unless_it_is_pinned(world: World) -> None:
    pair = kept(world)
    assert baselines.find(world.sessions, PRINT, max_age=MONTH) == pair
    assert baselines.find(world.sessions, PRINT, max_age=timedelta(0)) is None
    (listed,) = baselines.list_baselines(world.sessions)
    assert baselines.pin(world.sessions, listed.id).pinned
    assert baselines.find(world.sessions, PRINT, max_age=timedelta(0)) == pair
    assert not baselines.unpin(world.sessions, listed.id).pinned
    assert baselines.find(world.sessions, PRINT, max_age=timedelta(0)) is None


def test_a_newer_baseline_retires_the_older_one(world: World) -> None:
    kept(world)
    newer = kept(world)
    assert baselines.find(world.sessions, PRINT, max_age=MONTH) == newer
    assert len(baselines.list_baselines(world.sessions)) == 1
    assert len(baselines.list_baselines(world.sessions, retired=True)) == 2


def test_a_pinned_baseline_stays_in_use(world: World) -> None:
    pinned = kept(world)
    baselines.pin(world.sessions, baselines.list_baselines(world.sessions)[0].id)
    kept(world)
    assert baselines.find(world.sessions, PRINT, max_age=MONTH) == pinned


def test_baselines_kept_at_the_same_time_leave_one_in_use(world: World) -> None:
    with ThreadPoolExecutor(6) as pool:
        pairs = list(pool.map(lambda number: kept(world, f"worker-{number}"), range(6)))
    assert baselines.find(world.sessions, PRINT, max_age=MONTH) in pairs
    assert len(baselines.list_baselines(world.sessions)) == 1


def test_a_refreshed_baseline_is_measured_again(world: World) -> None:
    kept(world)
    (listed,) = baselines.list_baselines(world.sessions)
    assert baselines.refresh(world.sessions, listed.id).retired_at is not None
    assert baselines.find(world.sessions, PRINT, max_age=MONTH) is None
    for verb in (baselines.refresh, baselines.pin, baselines.unpin):
        with pytest.raises(Conflict, match="retired"):
            verb(world.sessions, listed.id)


def test_an_unknown_baseline_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        baselines.pin(world.sessions, 4711)


def test_an_incomplete_arm_is_not_kept(world: World) -> None:
    held = world.claim(world.submit())
    baseline, control = world.arm(held), world.arm(held, "control", complete=False)
    with pytest.raises(Conflict, match="not a complete control"):
        baselines.keep(
            world.sessions, held.run_id, owner="worker-1", fingerprint=PRINT, baseline_arm_id=baseline,
            control_arm_id=control,
        )  # fmt: skip


def test_a_reused_baseline_is_judged_with_its_measurements_and_named_as_another_runs(world: World) -> None:
    baseline, control = kept(world)
    held = world.claim(world.submit())
    record.use_baseline(
        world.sessions, held.run_id, owner="worker-1", baseline_arm_id=baseline, control_arm_id=control
    )
    world.arm(held, "candidate")
    with transaction(world.sessions) as session:
        records = arms.load_records(session, held.run_id, held.attempt)
    assert records["baseline"].measurements == (a_measurement(),)
    shown = {arm.role: arm.reused for arm in history.get_run(world.sessions, held.run_id).arms}
    assert shown == {"baseline": True, "control": True, "candidate": False}


def test_what_rests_on_a_baseline_is_counted_and_its_newest_runs_are_named(world: World) -> None:
    baseline, control = kept(world)
    [view] = baselines.list_baselines(world.sessions)
    later = [world.claim(world.submit()) for _ in range(baselines.SHOWN)]
    for held in later:
        record.use_baseline(
            world.sessions, held.run_id, owner="worker-1", baseline_arm_id=baseline, control_arm_id=control
        )
    rests = baselines.list_dependents(world.sessions, [view])[view.id]
    assert rests.attempts == baselines.SHOWN + 1
    assert [run_id for run_id, _ in rests.newest] == [held.run_id for held in reversed(later)]


def test_a_candidate_is_no_baseline(world: World) -> None:
    held = world.claim(world.submit())
    candidate = world.arm(held, "candidate")
    with pytest.raises(Conflict, match="not a complete baseline"):
        record.use_baseline(
            world.sessions, held.run_id, owner="worker-1", baseline_arm_id=candidate, control_arm_id=candidate
        )
