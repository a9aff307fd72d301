"""Health, token, headers, baselines, catalogue, OpenAPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gatekeeper.app import create_app
from gatekeeper.services import baselines
from tests.integration.services.seeds import World, a_change, make_settings


def test_a_service_with_its_database_and_broker_is_ready(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready", "database": "ok", "broker": "ok"}


def test_a_service_without_them_is_alive_and_says_what_is_away(tmp_path: Path) -> None:
    settings = make_settings("postgresql://127.0.0.1:1/nowhere", tmp_path, broker_url="redis://127.0.0.1:1/0")
    with TestClient(create_app(settings)) as client:
        assert client.get("/healthz").status_code == 200
        answer = client.get("/readyz")
        listed = client.get("/api/v1/runs")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert [error["field"] for error in answer.json()["errors"]] == ["database", "broker"]
    assert (listed.status_code, listed.json()["type"]) == (503, "urn:gatekeeper:problem:service-unavailable")


@pytest.mark.parametrize(
    ("authorization", "status"),
    [(None, 401), ("Bearer wrong", 401), ("Basic s3cret", 401), ("Bearer ", 401), ("Bearer s3cret", 202)],
)
def test_what_changes_something_needs_the_token(
    world: World, tmp_path: Path, authorization: str | None, status: int
) -> None:
    settings = make_settings(world.settings.database_url, tmp_path, api_token="s3cret")
    headers = {"Authorization": authorization} if authorization else {}
    with TestClient(create_app(settings)) as client:
        answer = client.post("/api/v1/runs", json=a_change(), headers=headers)
        assert client.get("/api/v1/runs").status_code == 200
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_request_that_another_sites_page_sent_is_refused(client: TestClient) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 202), ("none", 202)):
        headers = {"Sec-Fetch-Site": site}
        assert client.post("/api/v1/runs", json=a_change(), headers=headers).status_code == status


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/runs", "/api/v1/nothing", "/nothing"])
def test_every_answer_keeps_browsers_from_mischief(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert "default-src 'self'" in headers["Content-Security-Policy"]


def test_baselines_are_listed_pinned_and_refreshed(world: World, client: TestClient) -> None:
    held = world.claim(world.submit())
    arms = {role: world.arm(held, role) for role in ("baseline", "control")}
    baselines.keep(
        world.sessions, held.run_id, owner="worker-1", fingerprint="f", baseline_arm_id=arms["baseline"],
        control_arm_id=arms["control"],
    )  # fmt: skip
    (listed,) = client.get("/api/v1/baselines").json()["items"]
    assert (listed["model"], listed["run_id"], listed["pinned"]) == ("tiny", str(held.run_id), False)
    own = f"/api/v1/baselines/{listed['id']}"
    assert client.post(f"{own}/pin").json()["pinned"] is True
    assert client.post(f"{own}/unpin").json()["pinned"] is False
    assert client.post(f"{own}/refresh").json()["retired_at"] is not None
    assert client.post(f"{own}/pin").status_code == 409
    assert client.get("/api/v1/baselines").json()["items"] == []
    assert len(client.get("/api/v1/baselines", params={"retired": True}).json()["items"]) == 1
    for unknown in ("4711", "newest", "9" * 30, "-1"):
        assert client.post(f"/api/v1/baselines/{unknown}/pin").status_code == 404


def test_models_suites_and_policies_are_listed(client: TestClient) -> None:
    assert [model["name"] for model in client.get("/api/v1/models").json()["items"]] == ["tiny"]
    assert {"smoke", "standard"} <= {suite["name"] for suite in client.get("/api/v1/suites").json()["items"]}
    assert client.get("/api/v1/policies").json()["items"][0]["content"]["rules"]


def test_the_openapi_document_is_complete_and_its_examples_are_accepted(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    body = document["paths"]["/api/v1/runs"]["post"]["requestBody"]["content"]
    missing = {ref for ref in _references(document) if _resolve(document, ref) is None}
    assert missing == set()
    for example in body["application/json"]["examples"].values():
        value = example["value"] | {"model": "tiny"}
        if "command" in value:
            value = {**value, "command": value["command"].replace("smollm2-135m", "tiny")}
            del value["model"]
        assert client.post("/api/v1/plan", json=value).status_code == 200
    yaml = body["application/yaml"]["examples"]["smallest"]["value"].replace("smollm2-135m", "tiny")
    headers = {"Content-Type": "application/yaml"}
    assert client.post("/api/v1/plan", content=yaml, headers=headers).status_code == 200


def _references(node: Any) -> set[str]:
    match node:
        case {"$ref": str(reference)}:
            return {reference}
        case dict():
            return set().union(*(_references(value) for value in node.values()))
        case list():
            return set().union(*(_references(value) for value in node))
        case _:
            return set()


def _resolve(document: Any, reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        document = document.get(part) if isinstance(document, dict) else None
    return document


@pytest.mark.parametrize("unknown", ["x", "-1", "0", "9" * 18, "9" * 19, "9" * 400, "%D9%A1"])
def test_a_button_for_what_does_not_exist_is_404(client: TestClient, world: World, unknown: str) -> None:
    run_id = world.submit()
    paths = [f"/runs/{run_id}/waivers/{unknown}/revoke"]
    paths += [f"/baselines/{unknown}/{verb}" for verb in ("pin", "unpin", "refresh")]
    for path in paths:
        assert client.post(path, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 404
