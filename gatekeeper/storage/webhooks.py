"""Webhooks and the outbox of their messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Interval, insert, literal, select, update
from sqlalchemy.orm import Session

from gatekeeper.domain.errors import NotFound
from gatekeeper.storage.base import NOW, Json
from gatekeeper.storage.webhook_tables import DeliveryRow, WebhookRow


def add_webhook(session: Session, *, url: str, form: str, secret: str) -> WebhookRow:
    """Add a webhook."""
    row = WebhookRow(url=url, form=form, secret=secret)
    session.add(row)
    session.flush()
    session.refresh(row)
    return row


def list_webhooks(session: Session) -> list[WebhookRow]:
    """Those that hear of verdicts, the oldest first."""
    statement = select(WebhookRow).where(WebhookRow.removed_at.is_(None)).order_by(WebhookRow.id)
    return list(session.scalars(statement))


def get_webhook(session: Session, webhook_id: int) -> WebhookRow:
    """A webhook that was not removed, locked. Raises NotFound."""
    known = (WebhookRow.id == webhook_id, WebhookRow.removed_at.is_(None))
    row = session.scalars(select(WebhookRow).where(*known).with_for_update()).one_or_none()
    if row is None:
        raise NotFound(f"webhook {webhook_id}")
    return row


def remove_webhook(session: Session, webhook_id: int) -> None:
    """Let a webhook hear no more; what it has not heard yet is given up."""
    session.execute(update(WebhookRow).where(WebhookRow.id == webhook_id).values(removed_at=NOW))
    open_still = (DeliveryRow.webhook_id == webhook_id, DeliveryRow.delivered_at.is_(None))
    gone = {"given_up_at": NOW, "last_error": "the webhook was removed"}
    session.execute(update(DeliveryRow).where(*open_still, DeliveryRow.given_up_at.is_(None)).values(**gone))


def add_deliveries(session: Session, webhook_ids: list[int], facts: Json) -> None:
    """Put one message for each of these webhooks into the outbox."""
    rows = [{"id": uuid4(), "webhook_id": webhook_id, "facts": facts} for webhook_id in webhook_ids]
    if rows:
        session.execute(insert(DeliveryRow), rows)


def take_due(session: Session, *, lease: timedelta) -> tuple[DeliveryRow, WebhookRow] | None:
    """The message that is due longest, counted as one more attempt and not due again before `lease` is over."""
    due = (DeliveryRow.delivered_at.is_(None), DeliveryRow.given_up_at.is_(None), DeliveryRow.next_at <= NOW)
    statement = (
        select(DeliveryRow, WebhookRow)
        .join(WebhookRow, WebhookRow.id == DeliveryRow.webhook_id)
        .where(*due)
        .order_by(DeliveryRow.next_at)
        .limit(1)
        .with_for_update(of=DeliveryRow, skip_locked=True)
    )
    found = session.execute(statement).one_or_none()
    if found is None:
        return None
    delivery, webhook = found
    values: dict[str, Any] = {"attempts": delivery.attempts + 1, "next_at": NOW + literal(lease, Interval)}
    session.execute(update(DeliveryRow).where(DeliveryRow.id == delivery.id).values(**values))
    session.refresh(delivery)
    return delivery, webhook


def set_delivered(session: Session, delivery_id: UUID) -> None:
    """A message has arrived."""
    _set(session, delivery_id, delivered_at=NOW, last_error=None)


def set_failed(session: Session, delivery_id: UUID, error: str, *, wait: timedelta | None) -> None:
    """A message has not arrived; it is tried again after `wait`, or given up."""
    later = {"given_up_at": NOW} if wait is None else {"next_at": NOW + literal(wait, Interval)}
    _set(session, delivery_id, last_error=error, **later)


def list_deliveries(session: Session, webhook_id: int, *, limit: int) -> list[DeliveryRow]:
    """The newest messages of a webhook."""
    statement = select(DeliveryRow).where(DeliveryRow.webhook_id == webhook_id)
    return list(session.scalars(statement.order_by(DeliveryRow.created_at.desc()).limit(limit)))


def _set(session: Session, delivery_id: UUID, **values: Any) -> None:
    session.execute(update(DeliveryRow).where(DeliveryRow.id == delivery_id).values(**values))
