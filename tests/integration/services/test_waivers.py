"""Waivers on stored runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from gatekeeper.domain.errors import Conflict, InvalidInput
from gatekeeper.domain.verdict import Outcome, Verdict
from gatekeeper.services import history
from gatekeeper.services.finish import NotJudged
from gatekeeper.services.history import DeltaFilters
from gatekeeper.services.models import register_model
from gatekeeper.services.rejudge import reproduce
from gatekeeper.services.waivers import excusable_metrics, grant, list_waivers, revoke
from gatekeeper.storage.database import transaction
from tests.e2e.stored_runs import finished_run
from tests.integration.services.seeds import World
from tests.unit.web import samples


@pytest.fixture
def failed(world: World) -> UUID:
    register_model(world.sessions, samples.MODEL)
    return finished_run(world.sessions, world.settings, samples.failing())


def a_waiver(metric: str, **changed: Any) -> dict[str, Any]:
    until = datetime.now(UTC) + timedelta(days=14)
    document = {"metric": metric, "owner": "Ada Example", "reason": "room", "expires_at": until}
    return document | changed


def waive_all(world: World, run_id: UUID) -> list[int]:
    metrics = excusable_metrics(history.get_run(world.sessions, run_id).findings)
    return [grant(world.sessions, run_id, a_waiver(metric)).id for metric in metrics]


def test_a_waived_run_is_judged_again_at_once_and_keeps_when_it_finished(world: World, failed: UUID) -> None:
    before = history.get_run(world.sessions, failed)
    waive_all(world, failed)
    run = history.get_run(world.sessions, failed)
    assert (before.verdict, run.verdict) == (Verdict.FAIL, Verdict.PASS)
    assert run.finished_at == before.finished_at
    assert "waived by Ada Example" in (run.sentence or "")
    page = history.list_deltas(world.sessions, DeltaFilters(finding=Outcome.WAIVED), run_id=failed)
    assert {delta.metric for delta in page.items} == {waiver.metric for waiver in run.waivers}
    kinds = [event.kind for event in history.events_after(world.sessions, failed, 0).events]
    assert kinds.count("waived") == len(run.waivers)
    assert reproduce(world.sessions, failed)


def test_a_later_run_of_the_same_change_is_judged_with_it_and_another_change_is_not(
    world: World, failed: UUID
) -> None:
    waive_all(world, failed)
    again = finished_run(world.sessions, world.settings, samples.failing())
    assert history.get_run(world.sessions, again).verdict is Verdict.PASS
    plan = samples.plan(samples.change("fp8_e5m2", deployment={"max_context": 256}))
    other = finished_run(world.sessions, world.settings, (plan, samples.arms(plan, strays=samples.HARSH)))
    assert history.get_run(world.sessions, other).verdict is not Verdict.PASS
    with transaction(world.sessions) as session:  # as reports were before there were waivers
        session.execute(text("update runs set report = report - 'waivers' where id = :id"), {"id": other})
    assert reproduce(world.sessions, other)


def test_a_revoked_waiver_closes_the_gate_again_on_every_run_that_rests_on_it(
    world: World, failed: UUID
) -> None:
    first, *_ = waive_all(world, failed)
    again = finished_run(world.sessions, world.settings, samples.failing())
    assert history.get_run(world.sessions, again).verdict is Verdict.PASS
    assert revoke(world.sessions, first).in_force is False
    for run_id in (failed, again):
        run = history.get_run(world.sessions, run_id)
        assert run.verdict is Verdict.FAIL
        assert first not in [waiver.id for waiver in run.waivers]
        kinds = [event.kind for event in history.events_after(world.sessions, run_id, 0).events]
        assert kinds.count("waiver_revoked") == 1
    with pytest.raises(Conflict, match="was revoked"):
        revoke(world.sessions, first)


def test_an_expired_waiver_excuses_nothing_in_later_runs(world: World, failed: UUID) -> None:
    waive_all(world, failed)
    with transaction(world.sessions) as session:
        earlier = "update waivers set granted_at = granted_at - interval '60 days', expires_at = now() - interval '1 s'"
        session.execute(text(earlier))
    again = finished_run(world.sessions, world.settings, samples.failing())
    assert history.get_run(world.sessions, again).verdict is Verdict.FAIL
    assert [waiver.in_force for waiver in list_waivers(world.sessions, run_id=failed)][:1] == [False]
    assert list_waivers(world.sessions) == []
    assert list_waivers(world.sessions, ended=True) != []


WRONG: tuple[tuple[str, Any], ...] = (
    ("metric", "kv_capacity_ratio"),
    ("expires_at", "2020-01-01"),
    ("expires_at", "2200-01-01"),
    ("owner", ""),
    ("reason", None),
    ("forever", True),
)


def test_a_wrong_waiver_is_refused_by_field(world: World, failed: UUID) -> None:
    for field, value in WRONG:
        with pytest.raises(InvalidInput) as refusal:
            grant(world.sessions, failed, a_waiver("decode_kl") | {field: value})
        assert [problem.field for problem in refusal.value.problems] == [field]
    assert list_waivers(world.sessions) == []


def test_only_a_judged_run_can_be_waived(world: World) -> None:
    with pytest.raises(NotJudged, match="is queued"):
        grant(world.sessions, world.submit(), a_waiver("decode_kl"))
