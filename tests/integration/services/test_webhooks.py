"""The outbox: written with the verdict, emptied by couriers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import text

from gatekeeper.domain.errors import InvalidInput, NotFound
from gatekeeper.domain.verdict import Verdict
from gatekeeper.domain.webhook import MOST_ATTEMPTS
from gatekeeper.services.judge import judge
from gatekeeper.services.outgoing import Gone, NotSent
from gatekeeper.services.webhooks import add, deliver_due, list_deliveries, list_webhooks, remove
from gatekeeper.storage.database import transaction
from tests.integration.services.seeds import World, a_report

HOOK = {"url": "https://hooks.example/secret-path"}


@dataclass
class Receiver:
    """Takes messages, or fails as told."""

    got: list[tuple[str, dict[str, Any], Mapping[str, str]]] = field(default_factory=list)
    error: NotSent | None = None

    def post(self, url: str, body: bytes, headers: Mapping[str, str], *, allowed: Sequence[str]) -> None:
        assert not allowed
        self.got.append((url, json.loads(body), headers))
        if self.error:
            raise self.error


def deliver(world: World, receiver: Receiver, **settings: Any) -> int:
    return deliver_due(
        world.sessions, settings=world.settings.model_copy(update=settings), send=receiver.post
    )


def finish(world: World) -> str:
    held = world.claim(world.submit())
    judge(world.sessions, held.run_id, owner="worker-1", decide=lambda _plan, _arms: a_report(Verdict.FAIL))
    return str(held.run_id)


def make_due(world: World) -> None:
    with transaction(world.sessions) as session:
        session.execute(text("update deliveries set next_at = now() - interval '1 second'"))


def test_a_verdict_is_told_once_with_a_signature_and_the_runs_page(world: World) -> None:
    receiver = Receiver()
    added = add(world.sessions, HOOK)
    run_id = finish(world)
    assert deliver(world, receiver, public_url="https://gate.example/") == 2
    assert [message["event"] for _, message, _ in receiver.got] == ["ping", "run.finished"]
    url, message, headers = receiver.got[1]
    assert url == HOOK["url"]
    assert (message["run_id"], message["verdict"]) == (run_id, "FAIL")
    assert message["url"] == f"https://gate.example/runs/{run_id}"
    assert headers["webhook-signature"].startswith("v1,")
    assert added.secret.startswith("whsec_")
    assert deliver(world, receiver) == 0


def test_what_fails_is_sent_again_later_under_the_same_id_until_it_arrives(world: World) -> None:
    receiver = Receiver(error=NotSent("answered 500"))
    hook = add(world.sessions, HOOK)
    assert deliver(world, receiver) == 0
    assert deliver(world, receiver) == 0
    assert len(receiver.got) == 1
    [waiting] = list_deliveries(world.sessions, hook.id)
    assert (waiting.attempts, waiting.last_error, waiting.delivered_at) == (1, "answered 500", None)
    make_due(world)
    receiver.error = None
    assert deliver(world, receiver) == 1
    assert len({headers["webhook-id"] for _, _, headers in receiver.got}) == 1
    [arrived] = list_deliveries(world.sessions, hook.id)
    assert (arrived.attempts, arrived.last_error) == (2, None)


def test_a_courier_that_dies_while_sending_is_followed_by_another(world: World) -> None:
    add(world.sessions, HOOK)

    class Died(BaseException):
        """The process ends."""

    def die(*_: object, **__: object) -> None:
        raise Died

    with pytest.raises(Died):
        deliver_due(world.sessions, settings=world.settings, send=die)
    receiver = Receiver()
    assert deliver(world, receiver) == 0
    make_due(world)
    assert deliver(world, receiver) == 1


def test_an_unexpected_failure_counts_as_one_and_the_other_messages_are_sent(world: World) -> None:
    broken, sound = add(world.sessions, HOOK), add(world.sessions, HOOK | {"url": "https://other.example"})

    def send(url: str, *_: object, **__: object) -> None:
        if url == HOOK["url"]:
            raise OverflowError("port must be 0-65535.")

    assert deliver_due(world.sessions, settings=world.settings, send=send) == 1
    [failed] = list_deliveries(world.sessions, broken.id)
    assert (failed.attempts, failed.last_error) == (1, "unexpected OverflowError")
    [arrived] = list_deliveries(world.sessions, sound.id)
    assert arrived.delivered_at is not None


def test_a_message_is_given_up_after_all_attempts(world: World) -> None:
    hook_id = add(world.sessions, HOOK).id
    receiver = Receiver(error=NotSent("answered 500"))
    for _ in range(MOST_ATTEMPTS + 2):
        make_due(world)
        deliver(world, receiver)
    [given_up] = list_deliveries(world.sessions, hook_id)
    assert (given_up.attempts, given_up.given_up_at is None) == (MOST_ATTEMPTS, False)


def test_a_receiver_that_is_gone_is_removed_at_once(world: World) -> None:
    hook_id = add(world.sessions, HOOK).id
    deliver(world, Receiver(error=Gone("answered 410")))
    assert list_webhooks(world.sessions) == []
    with pytest.raises(NotFound):
        remove(world.sessions, hook_id)


def test_a_removed_webhook_hears_of_nothing(world: World) -> None:
    remove(world.sessions, add(world.sessions, HOOK).id)
    finish(world)
    assert deliver(world, Receiver()) == 0


def test_only_the_host_of_an_address_is_shown(world: World) -> None:
    add(world.sessions, HOOK | {"format": "slack"})
    [shown] = list_webhooks(world.sessions)
    assert "secret" not in shown.model_dump_json()
    assert (shown.host, shown.format) == ("hooks.example", "slack")


@pytest.mark.parametrize(
    "wrong", [{"url": "ftp://x"}, {"url": "https://u:p@x"}, HOOK | {"format": "xml"}, {}]
)
def test_a_wrong_webhook_is_refused(world: World, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        add(world.sessions, wrong)


def test_a_verdict_that_is_rolled_back_is_not_told(world: World) -> None:
    hook = add(world.sessions, HOOK)
    held = world.claim(world.submit())

    def decide_and_lose(*_: object) -> Any:
        with transaction(world.sessions) as session:
            session.execute(text("update runs set lease_owner = 'another'"))
        return a_report()

    with pytest.raises(Exception, match="belongs to another"):
        judge(world.sessions, held.run_id, owner="worker-1", decide=decide_and_lose)
    assert [delivery.event for delivery in list_deliveries(world.sessions, hook.id)] == ["ping"]
