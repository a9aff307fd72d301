"""`gatekeeper plan`."""

from __future__ import annotations

import click

from gatekeeper.calibrations import list_calibrations
from gatekeeper.catalog import get_policy, get_suite
from gatekeeper.cli.database import reachable_database
from gatekeeper.cli.environment import load_settings
from gatekeeper.cli.inputs import overridden, read_words
from gatekeeper.cli.known_models import find_model
from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.domain.foresight import Foresight, foresee
from gatekeeper.domain.plan import Plan, make_plan
from gatekeeper.reporting.plan import render_plan
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
    model, shape_source = find_model(change.model, settings)
    chosen = get_suite(change.suite, extra=settings.catalog_dir)
    resolved = make_plan(
        change,
        model=model,
        suite=chosen,
        policy=get_policy(change.policy or chosen.policy, extra=settings.catalog_dir),
        device=settings.device,
        allowed_arguments=settings.allowed_engine_args,
        calibrations=list_calibrations(settings.root),
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
