"""The tables of outgoing webhooks: who is told, and the outbox of what has to be told."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gatekeeper.storage.base import NOW, Base, Json


class WebhookRow(Base):
    """An address that hears of verdicts. `removed_at`: it hears no more."""

    __tablename__ = "webhooks"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    url: Mapped[str]
    form: Mapped[str]
    secret: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    removed_at: Mapped[datetime | None]

    __table_args__ = (CheckConstraint("form in ('json', 'slack')", name="form"),)


class DeliveryRow(Base):
    """A message to one webhook, written in the transaction that it tells of.

    Due while neither delivered nor given up and `next_at` has passed; who takes it moves `next_at` on, so that a sender
    that dies is followed by another.
    """

    __tablename__ = "deliveries"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    webhook_id: Mapped[int] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"), index=True)
    facts: Mapped[Json]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    next_at: Mapped[datetime] = mapped_column(server_default=NOW)
    delivered_at: Mapped[datetime | None]
    given_up_at: Mapped[datetime | None]
    last_error: Mapped[str | None]

    __table_args__ = (
        Index(
            "ix_deliveries_due",
            "next_at",
            postgresql_where=text("delivered_at is null and given_up_at is null"),
        ),
    )
