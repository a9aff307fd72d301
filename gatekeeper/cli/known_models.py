"""A model by its name, for commands that need no service: from the registry if it can be reached."""

from __future__ import annotations

from gatekeeper.cli.database import reachable_database
from gatekeeper.cli.environment import say
from gatekeeper.domain.errors import FieldProblem, InvalidInput, NotFound, ServiceUnavailable
from gatekeeper.domain.plan import Model
from gatekeeper.embedded import bundled_model
from gatekeeper.services import models
from gatekeeper.settings import Settings


def find_model(name: str, settings: Settings) -> tuple[Model, str]:
    """The model and where its shape comes from. Raises InvalidInput for an unknown one."""
    try:
        with reachable_database(settings) as sessions:
            if sessions is not None:
                return models.get_model(sessions, name), "shape from the registry"
    except NotFound as error:
        problem = FieldProblem(field="model", problem=f"unknown {name!r}", allowed="`gatekeeper model list`")
        raise InvalidInput([problem]) from error
    except ServiceUnavailable as error:
        say(f"the registry is not reachable ({error}); only the bundled model is known")
    if name != bundled_model.NAME:
        problem = FieldProblem(
            field="model",
            problem=f"unknown {name!r} without the registry's database",
            allowed=f"{bundled_model.NAME}, or DATABASE_URL",
        )
        raise InvalidInput([problem])
    built = bundled_model.is_built(settings.root)
    return bundled_model.bundled_model(settings.root), "shape of the bundled model" + (
        "" if built else ", not built yet"
    )
