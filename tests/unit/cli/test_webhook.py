"""`gatekeeper webhook`."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

from tests.unit.cli.fake_service import FakeService

Run = Callable[..., Result]
HOOK = {"id": 3, "host": "hooks.example", "format": "slack", "created_at": "2026-11-30T12:00:00Z"}
SENT = {"event": "run.finished", "run_id": "r-1", "created_at": "2026-11-30T12:00:00Z", "attempts": 2}


def test_adding_prints_the_secret(service: FakeService, run: Run) -> None:
    service.reply("POST /api/v1/webhooks", (201, HOOK | {"secret": "whsec_abc"}))
    result = run("webhook", "add", "https://hooks.example/x", "--slack", "--server", service.url)
    assert "whsec_abc" in result.stdout
    assert service.bodies("POST /api/v1/webhooks") == [{"url": "https://hooks.example/x", "format": "slack"}]


def test_webhooks_and_their_messages_are_listed(service: FakeService, run: Run) -> None:
    service.reply("GET /api/v1/webhooks", {"items": [HOOK]})
    assert "hooks.example" in run("webhook", "list", "--server", service.url).stdout
    items = [
        SENT | {"delivered_at": "2026-11-30T12:01:00Z"},
        SENT | {"given_up_at": "2026-11-30T12:01:00Z", "last_error": "answered 500"},
        SENT,
    ]
    service.reply("GET /api/v1/webhooks/3/deliveries", {"items": items})
    lines = run("webhook", "deliveries", "3", "--server", service.url).stdout.splitlines()[1:]
    assert ["arrived" in lines[0], "given up: answered 500" in lines[1], "waiting" in lines[2]] == [True] * 3


def test_a_webhook_is_removed(service: FakeService, run: Run) -> None:
    service.reply("POST /api/v1/webhooks/3/remove", HOOK)
    assert "hears no more" in run("webhook", "remove", "3", "--server", service.url).stdout
