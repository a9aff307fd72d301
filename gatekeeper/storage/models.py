"""Registered models."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from gatekeeper.domain.errors import NotFound
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model
from gatekeeper.storage.tables import ModelRow


def add_model(session: Session, model: Model) -> None:
    """Register a model, or replace the one of that name."""
    values = model.model_dump(mode="json")
    statement = insert(ModelRow).values(**values)
    session.execute(statement.on_conflict_do_update(index_elements=[ModelRow.name], set_=values))


def find_model(session: Session, name: str) -> Model | None:
    """The model of that name."""
    row = session.get(ModelRow, name)
    return None if row is None else _model(row)


def list_models(session: Session) -> list[Model]:
    """All models by name."""
    return [_model(row) for row in session.scalars(select(ModelRow).order_by(ModelRow.name))]


def delete_model(session: Session, name: str) -> None:
    """Forget a model. Runs that named it keep what they stored. Raises NotFound."""
    gone = session.execute(delete(ModelRow).where(ModelRow.name == name).returning(ModelRow.name)).first()
    if gone is None:
        raise NotFound(f"model {name!r}")


def _model(row: ModelRow) -> Model:
    shape = ModelShape.model_validate(row.shape) if row.shape is not None else None
    return Model(name=row.name, source=row.source, revision=row.revision, shape=shape)
