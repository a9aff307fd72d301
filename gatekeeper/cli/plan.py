"""`gatekeeper plan`."""

from __future__ import annotations

import click

from gatekeeper.catalog import get_policy, get_suite
from gatekeeper.cli.database import reachable_database
from gatekeeper.cli.environment import load_settings, say
from gatekeeper.cli.inputs import overridden, read_words
from gatekeeper.domain.change import Change
from gatekeeper.domain.errors import FieldProblem, InvalidInput, NotFound, ServiceUnavailable
from gatekeeper.domain.foresight import Foresight, foresee
from gatekeeper.domain.plan import Model, Plan, make_plan
from gatekeeper.embedded import bundled_model
from gatekeeper.reporting.plan import render_plan
from gatekeeper.services import models
from gatekeeper.services.intake import read_change
from gatekeeper.services.outlook import foresight_of
from gatekeeper.settings import Settings
from gatekeeper.storage.database import transaction


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="FILE | -- vllm serve MODEL FLAG...")
@click.option("--policy", metavar="NAME", help="Instead of the change's own.")
@click.option("--suite", metavar="NAME", help="Instead of the change's own.")
def plan(*, words: tuple[str, ...], policy: str | None, suite: str | None) -> None:
    """Show what gating a change would launch, measure and demand. Starts nothing.

    Models come from the registry if its database can be reached, else only the bundled model is known.
    """
    settings = load_settings()
    change = read_change(
        overridden(read_words(words, settings), suite=suite, policy=policy), settings=settings
    )
    model, shape_source = _find_model(change, settings)
    resolved = make_plan(
        change,
        model=model,
        suite=get_suite(change.suite, extra=settings.catalog_dir),
        policy=get_policy(change.policy, extra=settings.catalog_dir),
        device=settings.device,
        allowed_arguments=settings.allowed_engine_args,
    )
    click.echo(
        render_plan(resolved, shape_source=shape_source, foresight=_foresight(resolved, settings)), nl=False
    )


def _foresight(resolved: Plan, settings: Settings) -> tuple[Foresight, ...]:
    """What can be decided, by the noise of earlier runs if their database can be reached."""
    try:
        with reachable_database(settings) as sessions:
            if sessions is not None:
                with transaction(sessions) as session:
                    return foresight_of(session, resolved)
    except ServiceUnavailable:
        pass  # the look-up of the model has said so
    return foresee(resolved)


def _find_model(change: Change, settings: Settings) -> tuple[Model, str]:
    """The model and where its shape comes from. Raises InvalidInput for an unknown one."""
    try:
        with reachable_database(settings) as sessions:
            if sessions is not None:
                return models.get_model(sessions, change.model), "shape from the registry"
    except NotFound as error:
        problem = FieldProblem(
            field="model", problem=f"unknown {change.model!r}", allowed="`gatekeeper model list`"
        )
        raise InvalidInput([problem]) from error
    except ServiceUnavailable as error:
        say(f"the registry is not reachable ({error}); only the bundled model is known")
    if change.model != bundled_model.NAME:
        problem = FieldProblem(
            field="model",
            problem=f"unknown {change.model!r} without the registry's database",
            allowed=f"{bundled_model.NAME}, or DATABASE_URL",
        )
        raise InvalidInput([problem])
    built = bundled_model.is_built(settings.root)
    return bundled_model.bundled_model(settings.root), "shape of the bundled model" + (
        "" if built else ", not built yet"
    )
