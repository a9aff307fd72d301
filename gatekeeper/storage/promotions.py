"""Configurations that passed and became their model's reference."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gatekeeper.storage.tables import PromotionRow


def add_promotion(session: Session, **values: Any) -> PromotionRow:
    """Add a promotion with these columns; it is in effect from now on."""
    row = PromotionRow(**values)
    session.add(row)
    session.flush()
    session.refresh(row)
    return row


def find_reference(session: Session, model: str) -> PromotionRow | None:
    """The newest promotion of a model."""
    statement = select(PromotionRow).where(PromotionRow.model == model)
    return session.scalars(statement.order_by(PromotionRow.id.desc()).limit(1)).one_or_none()


def list_references(session: Session) -> list[PromotionRow]:
    """The promotion in effect of every model, by name."""
    newest = select(func.max(PromotionRow.id)).group_by(PromotionRow.model)
    statement = select(PromotionRow).where(PromotionRow.id.in_(newest)).order_by(PromotionRow.model)
    return list(session.scalars(statement))
