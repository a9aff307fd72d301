"""Runs side by side over HTTP: the same as the page."""

from __future__ import annotations

from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from gatekeeper.services.comparison import MOST_RUNS
from gatekeeper.services.models import register_model
from tests.e2e.stored_runs import finished_run
from tests.integration.services.seeds import World
from tests.unit.web import samples

COMPARE = "/api/v1/compare"


def test_the_api_says_what_the_page_says(world: World, client: TestClient) -> None:
    register_model(world.sessions, samples.MODEL)
    measured = (samples.failing(), samples.window())
    ids = [str(finished_run(world.sessions, world.settings, one)) for one in measured]
    answer = client.get(COMPARE, params={"run": [*ids, ids[0]]}).json()
    assert [run["run_id"] for run in answer["runs"]] == ids
    assert [run["verdict"] for run in answer["runs"]] == ["FAIL", "PASS"]
    assert {"name": "quantization.scheme", "values": ["fp8_e5m2", "none"]} in answer["settings"]
    by_key = {(row["metric"], row["mode"]): row["figures"] for row in answer["metrics"]}
    capacity = by_key["kv_capacity_ratio", "cold"]
    assert [round(figure["estimate"], 2) for figure in capacity] == [2.0, 1.0]
    kl = by_key["decode_kl", "cold"][0]
    assert (kl["finding"], kl["lower"] < kl["estimate"] < kl["upper"]) == ("Regressed", True)
    assert any(None in figures for figures in by_key.values())
    page = client.get("/compare", params={"run": ids}).text
    assert f"/api/v1/compare?run={ids[0]}&amp;run={ids[1]}" in page
    assert page.count("<tr><th scope") >= len(answer["metrics"])


@pytest.mark.parametrize("count", [0, 1, MOST_RUNS + 1])
def test_too_few_and_too_many_runs_are_refused_by_their_field(client: TestClient, count: int) -> None:
    answer = client.get(COMPARE, params={"run": [str(uuid4()) for _ in range(count)]})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "run")


def test_one_run_in_two_spellings_is_one_run(world: World, client: TestClient) -> None:
    run_id = world.submit()
    for other in (str(run_id).upper(), run_id.hex, f"{{{run_id}}}", run_id.urn):
        answer = client.get(COMPARE, params={"run": [str(run_id), other]})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "run")


def test_a_run_that_is_not_there_is_not_found(client: TestClient) -> None:
    assert client.get(COMPARE, params={"run": [str(uuid4()), str(uuid4())]}).status_code == 404


def test_it_is_described(client: TestClient) -> None:
    operation = client.get("/openapi.json").json()["paths"][COMPARE]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/ComparisonView"}
    assert operation["parameters"][0]["name"] == "run"
