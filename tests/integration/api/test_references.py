"""Promoting over HTTP."""

from __future__ import annotations

from fastapi.testclient import TestClient

from gatekeeper.services.models import register_model
from tests.e2e.stored_runs import finished_run
from tests.integration.services.seeds import World
from tests.unit.web import samples


def test_a_passed_run_is_promoted_and_a_failed_one_conflicts(world: World, client: TestClient) -> None:
    register_model(world.sessions, samples.MODEL)
    passed = finished_run(world.sessions, world.settings, samples.passing())
    run = client.get(f"/api/v1/runs/{passed}").json()
    promoted = client.post(run["links"]["promote"])
    assert (promoted.status_code, promoted.json()["flags"][:2]) == (201, ["--kv-cache-dtype", "fp8_e4m3"])
    assert client.get("/api/v1/references").json()["items"] == [promoted.json()]
    assert client.get(f"/api/v1/references/{run['model']}").json() == promoted.json()
    assert client.get("/api/v1/references/org/nothing").status_code == 404
    waiting = world.submit()
    refused = client.post(f"/api/v1/runs/{waiting}/promote")
    assert (refused.status_code, "is queued" in refused.json()["detail"]) == (409, True)
