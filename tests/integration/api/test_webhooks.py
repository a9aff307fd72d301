"""Webhooks over HTTP, delivered by the service itself."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gatekeeper.app import create_app
from gatekeeper.services.webhooks import add
from tests.fakes.receiver import receiver
from tests.integration.services.seeds import World, make_settings

HOOKS = "/api/v1/webhooks"


def test_a_webhook_is_added_listed_and_removed(client: TestClient) -> None:
    added = client.post(HOOKS, json={"url": "https://hooks.invalid/x"})
    assert (added.status_code, added.json()["secret"][:6]) == (201, "whsec_")
    [listed] = client.get(HOOKS).json()["items"]
    assert listed == {key: value for key, value in added.json().items() if key != "secret"}
    own = f"{HOOKS}/{listed['id']}"
    assert [entry["event"] for entry in client.get(f"{own}/deliveries").json()["items"]] == ["ping"]
    assert client.post(f"{own}/remove").status_code == 200
    assert client.post(f"{own}/remove").status_code == 404
    assert client.post(HOOKS, json={"url": "gopher://x"}).json()["errors"][0]["field"] == "url"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "2130706433", "0x7f000001", "127.1", "[::1]", "[fe80::1]",
             "[::ffff:10.0.0.1]", "localhost", "api.LOCALHOST"],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused_at_once(client: TestClient, host: str) -> None:
    answer = client.post(HOOKS, json={"url": f"http://{host}/x"})
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == "url"
    assert "is not public; the operator can allow networks like it" in error["problem"]
    assert client.get(HOOKS).json()["items"] == []


def test_the_service_delivers_in_the_background_only_where_it_may(world: World, tmp_path: Path) -> None:
    settings = make_settings(
        world.settings.database_url, tmp_path, webhook_networks=("127.0.0.0/8",), sweep_seconds=0.05
    )
    with receiver() as (url, got), TestClient(create_app(settings)) as client:
        added = client.post(HOOKS, json={"url": url.replace("receiver.example", "127.0.0.1")})
        assert added.status_code == 201
        hidden = add(
            world.sessions, {"url": "http://[::1]:1/"}, allowed=("::1/128",)
        ).id  # allowed once, not any more
        deliveries = f"{HOOKS}/{hidden}/deliveries"
        until = time.monotonic() + 10
        while time.monotonic() < until and not client.get(deliveries).json()["items"][0]["last_error"]:
            time.sleep(0.05)
        [refused] = client.get(deliveries).json()["items"]
    assert json.loads(got[0][2])["event"] == "ping"
    assert "is not public" in refused["last_error"]
