"""The models that callers may name. Only the operator registers them."""

from __future__ import annotations

from gatekeeper.domain.errors import NotFound
from gatekeeper.domain.plan import Model
from gatekeeper.storage import models
from gatekeeper.storage.database import Sessions, transaction


def register_model(sessions: Sessions, model: Model) -> None:
    """Register a model, or replace the one of that name."""
    with transaction(sessions) as session:
        models.add_model(session, model)


def forget_model(sessions: Sessions, name: str) -> None:
    """Refuse a model from now on; runs that named it stay as they are. Raises NotFound."""
    with transaction(sessions) as session:
        models.delete_model(session, name)


def list_models(sessions: Sessions) -> list[Model]:
    """All registered models by name."""
    with transaction(sessions) as session:
        return models.list_models(session)


def get_model(sessions: Sessions, name: str) -> Model:
    """The model of that name. Raises NotFound."""
    with transaction(sessions) as session:
        model = models.find_model(session, name)
    if model is None:
        raise NotFound(f"model {name!r}")
    return model
