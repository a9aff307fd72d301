"""Webhooks: who hears of verdicts, and the courier that takes messages out of the outbox.

A message is stored in the transaction of the verdict, so none is lost and none tells of what was rolled back. It is
sent outside of any request and any transaction, at least once: receivers know a repeated one by its `webhook-id`.
"""

from __future__ import annotations

import base64
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

import httpx
from pydantic import ValidationError, ValidationInfo, field_validator
from sqlalchemy.orm import Session

from gatekeeper.domain.base import Closed
from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.verdict import Report
from gatekeeper.domain.webhook import (
    SECRET_PREFIX,
    EventKind,
    WebhookFormat,
    body_of,
    signed_headers,
    wait_after,
)
from gatekeeper.services.outgoing import Gone, NotSent, host_problem, post, url_problem
from gatekeeper.services.views import View
from gatekeeper.settings import Settings
from gatekeeper.storage import webhooks
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.tables import RunRow
from gatekeeper.storage.webhook_tables import DeliveryRow, WebhookRow

log = logging.getLogger(__name__)

LEASE: Final = timedelta(minutes=1)
AT_ONCE: Final = 50
"""Messages sent in one round at most."""

Post = Callable[..., None]


class WebhookDocument(Closed):
    """What a caller says: the address, and whether it takes our JSON or Slack's."""

    url: str
    format: WebhookFormat = "json"

    @field_validator("url")
    @classmethod
    def _can_be_reached(cls, url: str, info: ValidationInfo) -> str:
        if len(url) > 2000:
            raise ValueError("is longer than 2,000 characters")
        problem = url_problem(url) or host_problem(url, allowed=(info.context or {}).get("allowed", ()))
        if problem:
            raise ValueError(problem)
        return url


class WebhookView(View):
    """A webhook. Of its address only the host is shown: with some services the rest is a secret."""

    id: int
    host: str
    format: str
    created_at: datetime


class NewWebhook(WebhookView):
    """A webhook as it was added, with the secret that signs its messages. The secret is shown once."""

    secret: str


class DeliveryView(View):
    """A message to a webhook and what became of it."""

    id: UUID
    event: str
    run_id: UUID | None
    created_at: datetime
    attempts: int
    next_at: datetime
    delivered_at: datetime | None
    given_up_at: datetime | None
    last_error: str | None


def add(sessions: Sessions, document: Mapping[str, Any], *, allowed: Sequence[str] = ()) -> NewWebhook:
    """Add a webhook and send it a first message. `allowed`: networks that it may be in although not public.

    Raises InvalidInput.
    """
    try:
        asked = WebhookDocument.model_validate(document, context={"allowed": allowed})
    except ValidationError as error:
        raise InvalidInput(field_problems(error, WebhookDocument)) from error
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    with transaction(sessions) as session:
        row = webhooks.add_webhook(session, url=asked.url, form=asked.format, secret=secret)
        webhooks.add_deliveries(session, [row.id], {"event": "ping"})
        return NewWebhook(**dict(_view(row)), secret=secret)


def remove(sessions: Sessions, webhook_id: int) -> WebhookView:
    """Let a webhook hear no more. Raises NotFound."""
    with transaction(sessions) as session:
        row = webhooks.get_webhook(session, webhook_id)
        webhooks.remove_webhook(session, webhook_id)
        return _view(row)


def list_webhooks(sessions: Sessions) -> list[WebhookView]:
    """Those that hear of verdicts."""
    with transaction(sessions) as session:
        return [_view(row) for row in webhooks.list_webhooks(session)]


def list_deliveries(sessions: Sessions, webhook_id: int, *, limit: int = 100) -> list[DeliveryView]:
    """The newest messages to a webhook. Raises NotFound."""
    with transaction(sessions) as session:
        webhooks.get_webhook(session, webhook_id)
        return [
            DeliveryView(
                event=row.facts["event"],
                run_id=row.facts.get("run_id"),
                **{n: getattr(row, n) for n in DeliveryView.model_fields.keys() - {"event", "run_id"}},
            )
            for row in webhooks.list_deliveries(session, webhook_id, limit=limit)
        ]


def announce(session: Session, run: RunRow, report: Report, kind: EventKind) -> None:
    """Put the news of a verdict into the outbox of every webhook, in the transaction that stores it."""
    told = [row.id for row in webhooks.list_webhooks(session)]
    if not told:
        return
    facts = {
        "event": kind,
        "run_id": str(run.id),
        "name": run.label,
        "verdict": report.verdict,
        "sentence": report.sentence,
        "attempt": run.attempt,
    }
    facts |= {
        name: getattr(run, name) for name in ("model", "scheme", "eviction", "repo", "commit", "author")
    }
    webhooks.add_deliveries(session, told, facts)


def deliver_due(sessions: Sessions, *, settings: Settings, send: Post = post) -> int:
    """Send what is due; return how many messages arrived. Safe beside other couriers."""
    arrived = 0
    for _ in range(AT_ONCE):
        with transaction(sessions) as session:
            taken = webhooks.take_due(session, lease=LEASE)
        if taken is None:
            break
        delivery, webhook = taken
        try:
            _send(delivery, webhook, settings=settings, send=send)
        except NotSent as error:
            _failed(sessions, delivery.id, webhook, error, attempts=delivery.attempts)
            continue
        except Exception as error:  # one message must not keep the others from being sent
            log.exception("webhook %s, attempt %s", webhook.id, delivery.attempts)
            unexpected = NotSent(f"unexpected {type(error).__name__}")
            _failed(sessions, delivery.id, webhook, unexpected, attempts=delivery.attempts)
            continue
        with transaction(sessions) as session:
            webhooks.set_delivered(session, delivery.id)
        arrived += 1
    return arrived


def _send(delivery: DeliveryRow, webhook: WebhookRow, *, settings: Settings, send: Post) -> None:
    page = _page(settings, delivery.facts.get("run_id"))
    body = body_of(cast("WebhookFormat", webhook.form), delivery.facts, page=page)
    headers = signed_headers(
        webhook.secret, message_id=str(delivery.id), timestamp=int(time.time()), body=body
    )
    send(webhook.url, body, headers, allowed=settings.webhook_networks)


def _failed(
    sessions: Sessions, delivery_id: UUID, webhook: WebhookRow, error: NotSent, *, attempts: int
) -> None:
    wait = None if isinstance(error, Gone) else wait_after(attempts)
    log.warning("webhook %s, attempt %s: %s", webhook.id, attempts, error)
    with transaction(sessions) as session:
        webhooks.set_failed(session, delivery_id, error.detail, wait=wait)
        if isinstance(error, Gone):
            webhooks.remove_webhook(session, webhook.id)


def _page(settings: Settings, run_id: str | None) -> str | None:
    if settings.public_url is None or run_id is None:
        return None
    return f"{settings.public_url.rstrip('/')}/runs/{run_id}"


def _view(row: WebhookRow) -> WebhookView:
    return WebhookView(id=row.id, host=httpx.URL(row.url).host, format=row.form, created_at=row.created_at)
