"""Promoting what passed."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import text

from gatekeeper.domain.errors import InvalidInput, NotFound
from gatekeeper.services import history
from gatekeeper.services.models import register_model
from gatekeeper.services.promote import NotPassed, ServesNobody, get_reference, list_references, promote
from gatekeeper.services.submit import submit
from gatekeeper.services.waivers import grant
from gatekeeper.storage.database import transaction
from tests.e2e.stored_runs import Measured, finished_run
from tests.integration.services.seeds import World
from tests.integration.services.test_waivers import a_waiver, waive_all
from tests.unit.web import samples


def stored(world: World, measured: Measured) -> UUID:
    register_model(world.sessions, samples.MODEL)
    return finished_run(world.sessions, world.settings, measured)


def test_what_passed_becomes_the_reference_with_its_flags(world: World) -> None:
    run_id = stored(world, samples.passing())
    found = promote(world.sessions, run_id)
    assert found.command == "vllm serve smollm2-135m --kv-cache-dtype fp8_e4m3 --no-enable-prefix-caching"
    assert found.engine is not None
    candidate = next(a for a in history.get_run(world.sessions, run_id).arms if a.role == "candidate")
    assert found.measured_argv == candidate.argv
    assert get_reference(world.sessions, samples.MODEL.name) == found
    assert list_references(world.sessions) == [found]


def test_a_later_change_can_be_held_against_the_reference_if_it_says_so(world: World) -> None:
    scheduling = {"quantization": {"scheme": "fp8_e4m3"}, "scheduling": {"max_num_seqs": 8}}
    plan = samples.plan(samples.change(candidate=scheduling))
    promote(world.sessions, stored(world, (plan, samples.arms(plan))))
    document = {
        "model": samples.MODEL.name, "baseline": "promoted", "suite": "smoke",
        "candidate": {"quantization": {"scheme": "fp8_e5m2"}},
    }  # fmt: skip
    asked = submit(world.sessions, document, settings=world.settings, ring=world.bell.ring)
    config = history.get_run(world.sessions, asked.run_id).plan["baseline"]["config"]
    assert (config["quantization"]["scheme"], config["scheduling"]["max_num_seqs"]) == ("none", 8)
    with pytest.raises(InvalidInput, match="baseline: nothing of 'tiny' was promoted"):
        world.submit(baseline="promoted")


def test_nothing_but_pass_is_promoted(world: World) -> None:
    with pytest.raises(NotPassed, match="is FAIL"):
        promote(world.sessions, stored(world, samples.failing()))
    with pytest.raises(NotPassed, match="is queued"):
        promote(world.sessions, world.submit())
    with pytest.raises(NotFound):
        get_reference(world.sessions, samples.MODEL.name)


def test_what_passed_on_the_reference_engine_serves_nobody(world: World) -> None:
    plan = samples.plan(samples.change(engine="reference"))
    with pytest.raises(ServesNobody, match="the change asks for it"):
        promote(world.sessions, stored(world, (plan, samples.arms(plan))))


def test_a_pass_that_rests_on_a_waiver_that_ended_is_promoted_no_more(world: World) -> None:
    run_id = stored(world, samples.failing())
    waive_all(world, run_id)
    promote(world.sessions, run_id)
    with transaction(world.sessions) as session:  # as a run that is judged while a waiver is being revoked
        session.execute(text("update waivers set revoked_at = now() where run_id = :id"), {"id": run_id})
    with pytest.raises(NotPassed, match=r"waiver of .* by Ada Example was revoked"):
        promote(world.sessions, run_id)
    with transaction(world.sessions) as session:
        session.execute(text("update waivers set revoked_at = null"))
    past = "jsonb_set(report, '{waivers,0,expires_at}', '\"2020-01-01T00:00:00Z\"')"
    with transaction(world.sessions) as session:
        session.execute(text(f"update runs set report = {past}"))
    with pytest.raises(NotPassed, match=r"waiver of .* by Ada Example has expired"):
        promote(world.sessions, run_id)
    with pytest.raises(InvalidInput):
        grant(world.sessions, run_id, a_waiver("decode_kl", expires_at="2020-01-01"))
