"""Judging a stored run again over HTTP."""

from __future__ import annotations

from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from gatekeeper.services.models import register_model
from tests.e2e.stored_runs import finished_run
from tests.integration.services.seeds import World
from tests.unit.web import samples

STRICT = {"name": "strict", "rules": [{"metric": "decode_kl", "at_most": 1e-6, "reason": "no change at all"}]}
YAML = "policy:\n  name: strict\n  rules:\n    - {metric: decode_kl, at_most: 1.0e-6, reason: r}\n"


SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def passed(world: World) -> str:
    """The path of a run that passed."""
    register_model(world.sessions, samples.MODEL)
    return f"/api/v1/runs/{finished_run(world.sessions, world.settings, samples.passing())}"


def test_the_answer_has_the_form_of_the_run_and_leaves_it_as_it_is(client: TestClient, passed: str) -> None:
    before = client.get(passed).json()
    answer = client.post(before["links"]["rejudge"], json={"policy": STRICT})
    assert answer.status_code == 200
    assert answer.json().keys() == before.keys()
    assert (before["verdict"], answer.json()["verdict"], answer.json()["policy"]) == (
        "PASS",
        "FAIL",
        "strict",
    )
    assert client.get(passed).json() == before


def test_a_policy_can_be_named_or_sent_as_yaml(client: TestClient, passed: str) -> None:
    assert client.post(f"{passed}/rejudge", json={"policy": "fast"}).json()["verdict"] == "PASS"
    headers = {"Content-Type": "application/yaml"}
    assert client.post(f"{passed}/rejudge", content=YAML, headers=headers).json()["verdict"] == "FAIL"


def test_a_wrong_policy_is_refused_by_field(client: TestClient, passed: str) -> None:
    wrong = {"policy": STRICT | {"alpha": 0.9, "rules": [{"metric": "vibes", "reason": "r"}]}}
    answer = client.post(f"{passed}/rejudge", json=wrong)
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
    assert [error["field"] for error in answer.json()["errors"]][:2] == ["policy.alpha", "policy.rules.0"]
    unknown = client.post(f"{passed}/rejudge", json={"policy": "nowhere"}).json()
    assert "default, fast" in unknown["errors"][0]["allowed"]


def test_a_run_without_a_verdict_of_a_policy_conflicts_and_an_unknown_one_is_404(
    world: World, client: TestClient
) -> None:
    waiting = client.post(f"/api/v1/runs/{world.submit()}/rejudge", json={"policy": "default"})
    assert (waiting.status_code, waiting.json()["type"]) == (409, "urn:gatekeeper:problem:conflict")
    assert "is queued" in waiting.json()["detail"]
    assert client.post(f"/api/v1/runs/{uuid4()}/rejudge", json={"policy": "default"}).status_code == 404


def test_the_examples_in_the_description_of_the_api_are_accepted(client: TestClient, passed: str) -> None:
    path = client.get("/openapi.json").json()["paths"]["/api/v1/runs/{run_id}/rejudge"]["post"]
    examples = path["requestBody"]["content"]["application/json"]["examples"]
    answers = {
        name: client.post(f"{passed}/rejudge", json=example["value"]) for name, example in examples.items()
    }
    assert {name: answer.status_code for name, answer in answers.items()} == {"name": 200, "inline": 200}


def test_the_page_judges_only_when_its_own_form_is_sent(client: TestClient, passed: str) -> None:
    page = passed.removeprefix("/api/v1")
    form = {"shown": "default", "policy": "default", "limit-0": "0.000001"}
    asked = client.get(page + "/rejudge", params=form)
    assert (asked.status_code, "<caption" in asked.text) == (200, False)
    assert client.post(page + "/rejudge", data=form).status_code == 403
    sent = client.post(page + "/rejudge", data=form, headers=SAME_ORIGIN)
    assert sent.status_code == 200
    assert 'value="0.000001"' in sent.text
    assert '<tr role="row" class="changed">' in sent.text
    refused = client.post(page + "/rejudge", data=form | {"limit-0": "a lot"}, headers=SAME_ORIGIN)
    assert (refused.status_code, "got &#39;a lot&#39;" in refused.text) == (400, True)
