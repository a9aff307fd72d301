"""Waivers over HTTP and from the page's form."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from gatekeeper.services.models import register_model
from gatekeeper.storage.base import Base
from tests.e2e.stored_runs import finished_run
from tests.integration.services.seeds import World
from tests.unit.web import samples

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def failed(world: World) -> str:
    """The id of a run that failed."""
    assert "waivers" in Base.metadata.tables
    register_model(world.sessions, samples.MODEL)
    return str(finished_run(world.sessions, world.settings, samples.failing()))


def test_a_waiver_is_granted_listed_and_revoked(client: TestClient, failed: str) -> None:
    links = client.get(f"/api/v1/runs/{failed}").json()["links"]
    body = {"metric": "decode_kl", "owner": "Ada", "reason": "room", "expires_at": soon()}
    granted = client.post(links["waivers"], json=body)
    assert (granted.status_code, granted.json()["in_force"]) == (201, True)
    assert client.get(links["waivers"]).json()["items"] == client.get("/api/v1/waivers").json()["items"]
    run = client.get(links["self"]).json()
    assert [waiver["owner"] for waiver in run["waivers"]] == ["Ada"]
    assert client.post(f"/api/v1/waivers/{granted.json()['id']}/revoke").json()["in_force"] is False
    assert client.get(links["self"]).json()["waivers"] == []
    assert client.post("/api/v1/waivers/x/revoke").status_code == 404


def test_a_wrong_waiver_is_422_naming_what_is_allowed(client: TestClient, failed: str) -> None:
    body = {"metric": "vibes", "owner": "Ada", "reason": "room", "expires_at": soon()}
    answer = client.post(f"/api/v1/runs/{failed}/waivers", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "metric")
    assert "decode_kl" in answer.json()["errors"][0]["allowed"]


def test_the_form_on_the_page_waives_and_the_button_revokes(client: TestClient, failed: str) -> None:
    page = f"/runs/{failed}"
    assert f'action="{page}/waive"' in client.get(page).text
    form = {"metric": "decode_kl", "owner": "Ada", "reason": "room", "expires_at": soon()}
    sent = client.post(f"{page}/waive", data=form, headers=SAME_ORIGIN, follow_redirects=False)
    assert (sent.status_code, sent.headers["Location"]) == (303, page)
    shown = client.get(page).text
    assert "waived by Ada until" in shown
    [waiver] = client.get(f"/api/v1/runs/{failed}/waivers").json()["items"]
    revoke = f"{page}/waivers/{waiver['id']}/revoke"
    assert f'action="{revoke}"' in shown
    assert client.post(revoke, headers=SAME_ORIGIN, follow_redirects=False).status_code == 303
    assert "revoked" in client.get(page).text
    assert client.post(f"{page}/waive", data=form).status_code == 403


def soon() -> str:
    from datetime import UTC, datetime, timedelta

    return f"{datetime.now(UTC) + timedelta(days=7):%Y-%m-%d}"
