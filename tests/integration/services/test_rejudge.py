"""Judging stored runs again: the same policy gives the same bytes, another its own verdict, and nothing is stored."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from gatekeeper.domain.errors import InvalidInput, NotFound
from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.verdict import Verdict
from gatekeeper.services import history, record
from gatekeeper.services.cancel import cancel
from gatekeeper.services.finish import NotJudged, finish_error
from gatekeeper.services.judge import judge
from gatekeeper.services.rejudge import differences, list_finished, rejudge, reproduce
from gatekeeper.storage.database import transaction
from tests.e2e import stored_runs
from tests.integration.services.seeds import World
from tests.unit.web import samples

STRICT = {"name": "strict", "rules": [{"metric": "decode_kl", "at_most": 1e-6, "reason": "no change at all"}]}
LOOSE = {"name": "loose", "rules": [{"metric": "decode_kl", "at_most": 100.0, "reason": "anything goes"}]}


@pytest.fixture
def stored(world: World) -> stored_runs.StoredRuns:
    return stored_runs.store_runs(world.sessions, world.settings)


def given_up(world: World) -> UUID:
    """A run that came to ERROR without being judged."""
    held = world.claim(world.submit())
    world.arm(held)
    finish_error(world.sessions, held.run_id, owner="worker-1", cause="the worker's disk is full")
    return held.run_id


def with_a_baseline_of(world: World, earlier: UUID) -> UUID:
    """A run that measured only its candidate."""
    plan, arms = samples.failing()
    run_id = stored_runs._claimed(world.sessions, world.settings, plan)
    found = {arm.role: arm.arm_id for arm in history.get_run(world.sessions, earlier).arms}
    owner = stored_runs.OWNER
    record.use_baseline(
        world.sessions,
        run_id,
        owner=owner,
        baseline_arm_id=found["baseline"],
        control_arm_id=found["control"],
    )
    stored_runs._store_arm(world.sessions, run_id, arms["candidate"])
    judge(world.sessions, run_id, owner=owner)
    return run_id


def with_a_value_that_is_no_number(world: World) -> UUID:
    plan, arms = samples.passing()
    nan = Measurement.of(
        suite="accuracy",
        mode="cold",
        item_id="gk_recall/x",
        cluster="gk_recall",
        metric="correct",
        value=1e999,
    )
    candidate = arms["candidate"]
    arms["candidate"] = dataclasses.replace(candidate, measurements=(*candidate.measurements, nan))
    return stored_runs.finished_run(world.sessions, world.settings, (plan, arms))


def test_every_stored_report_comes_out_of_the_stored_measurements_byte_for_byte(
    world: World, stored: stored_runs.StoredRuns
) -> None:
    with_a_baseline_of(world, stored.passed)
    with_a_value_that_is_no_number(world)
    finished = [run_id for run_id, _ in list_finished(world.sessions)]
    assert len(finished) == 10
    assert {history.get_run(world.sessions, run_id).verdict for run_id in finished} == set(Verdict)
    assert [run_id for run_id in finished if not reproduce(world.sessions, run_id)] == []


def test_a_report_that_does_not_come_out_the_same_is_found_with_its_places(
    world: World, stored: stored_runs.StoredRuns
) -> None:
    with transaction(world.sessions) as session:
        changed = "update runs set report = jsonb_set(report, '{deltas,0,estimate}', '0.5') where id = :id"
        session.execute(text(changed), {"id": stored.passed})
        session.execute(
            text("update measurements set value = 0 where metric = 'correct' and arm_id = :id"),
            {"id": history.get_run(world.sessions, stored.failed).arms[-1].arm_id},
        )
    assert differences(world.sessions, stored.passed) == ("deltas.0.estimate",)
    assert not reproduce(world.sessions, stored.failed)
    assert "sentence" in differences(world.sessions, stored.failed)


def test_another_policy_gives_its_own_verdict_and_says_what_the_run_has(
    world: World, stored: stored_runs.StoredRuns
) -> None:
    passed = rejudge(world.sessions, stored.passed, {"policy": STRICT}, settings=world.settings)
    assert (passed.verdict, passed.policy, passed.run_id) == (Verdict.FAIL, "strict", stored.passed)
    assert [finding.metric for finding in passed.findings] == ["decode_kl"]
    assert passed.plan["policy"]["name"] == "strict"
    assert passed.notes[-1] == ("The run's own verdict, by default, is PASS; here strict judged it again.")
    failed = rejudge(world.sessions, stored.failed, {"policy": LOOSE}, settings=world.settings)
    assert failed.verdict is Verdict.PASS


def test_the_same_policy_by_name_gives_the_same_report_but_for_a_note(
    world: World, stored: stored_runs.StoredRuns
) -> None:
    own = history.get_run(world.sessions, stored.failed)
    again = rejudge(world.sessions, stored.failed, {"policy": own.policy}, settings=world.settings)
    assert again.model_copy(update={"notes": again.notes[:-1]}) == own


def test_evidence_that_does_not_speak_of_the_change_does_so_under_any_policy(
    world: World, stored: stored_runs.StoredRuns
) -> None:
    for run_id in (stored.invalid, stored.refused, stored.error):
        own = history.get_run(world.sessions, run_id)
        again = rejudge(world.sessions, run_id, {"policy": LOOSE}, settings=world.settings)
        assert (again.verdict, again.sentence) == (own.verdict, own.sentence)


def test_judging_again_changes_nothing_that_is_stored(world: World, stored: stored_runs.StoredRuns) -> None:
    before = everything(world)
    rejudge(world.sessions, stored.passed, {"policy": STRICT}, settings=world.settings)
    assert reproduce(world.sessions, stored.passed)
    assert everything(world) == before


def everything(world: World) -> dict[str, list[Any]]:
    tables = ("runs", "events", "deltas", "arms")
    with transaction(world.sessions) as session:
        return {
            table: list(session.execute(text(f"select {table}::text from {table} order by 1")))
            for table in tables
        }


def test_a_run_that_no_policy_has_judged_is_not_judged_again(
    world: World, stored: stored_runs.StoredRuns
) -> None:
    cancelled = world.submit()
    cancel(world.sessions, cancelled)
    for run_id in (stored.queued, stored.running, cancelled, given_up(world)):
        with pytest.raises(NotJudged):
            rejudge(world.sessions, run_id, {"policy": "default"}, settings=world.settings)
        with pytest.raises(NotJudged):
            reproduce(world.sessions, run_id)
    with pytest.raises(NotJudged, match="the worker's disk is full"):
        reproduce(world.sessions, given_up(world))


def test_an_unknown_run_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        rejudge(world.sessions, uuid4(), {"policy": "default"}, settings=world.settings)


def test_a_run_whose_policy_is_of_another_version_can_be_judged_by_one_of_this(
    world: World, stored: stored_runs.StoredRuns
) -> None:
    with transaction(world.sessions) as session:
        older = "update runs set plan = jsonb_set(plan, '{policy,rules}', '[{\"metric\": \"vibes\"}]') where id = :id"
        session.execute(text(older), {"id": stored.passed})
    again = rejudge(world.sessions, stored.passed, {"policy": STRICT}, settings=world.settings)
    assert again.verdict is Verdict.FAIL
    (said,) = differences(world.sessions, stored.passed)
    assert said.startswith("the plan is none of this version: policy.rules.0")


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ({}, ["policy"]),
        ({"policy": 7}, ["policy"]),
        ({"policy": "nowhere"}, ["policy"]),
        ({"policy": "default", "alpha": 0.1}, ["alpha"]),
        ({"policy": {}}, ["policy.name", "policy.rules"]),
        ({"policy": STRICT | {"rules": []}}, ["policy.rules"]),
        ({"policy": STRICT | {"alpha": 2}}, ["policy.alpha"]),
        ({"policy": STRICT | {"colour": "red"}}, ["policy.colour"]),
        ({"policy": {"name": "p", "rules": [{"metric": "decode_kl", "reason": "r"}]}}, ["policy.rules.0"]),
    ],
)
def test_a_policy_that_is_none_is_refused_by_field(
    world: World, document: dict[str, Any], fields: list[str]
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        rejudge(world.sessions, uuid4(), document, settings=world.settings)
    assert [problem.field for problem in refusal.value.problems][: len(fields)] == fields
