"""`gatekeeper rejudge`: a stored run by another policy, or by its own to see that nothing has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gatekeeper.cli.database import open_database
from gatekeeper.cli.environment import Service, existing_service, load_settings, server_option
from gatekeeper.cli.exits import ExitCode
from gatekeeper.cli.gate import check_output, format_option, is_file_name, output_option, print_reports
from gatekeeper.cli.inputs import read_document
from gatekeeper.cli.signals import interruptible
from gatekeeper.services.ids import run_id_of
from gatekeeper.settings import Settings

SHOWN = 3
"""Places named of a report that differs."""


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@server_option
@click.option("--policy", metavar="NAME|FILE", help="The policy to judge by; a FILE ends in .yaml.")
@click.option(
    "--verify",
    is_flag=True,
    help="Judge all runs, or RUN, by their own policies and name those whose report comes out otherwise.",
)
@format_option
@output_option
@click.pass_context
def rejudge(
    ctx: click.Context,
    *,
    run_id: str | None,
    server: str | None,
    policy: str | None,
    verify: bool,
    format_name: str,
    output: Path | None,
) -> None:
    """Show the verdict that another policy would have given a run. Needs no engine and changes nothing.

    The exit code is that of the new verdict, as with `gate`.

    --verify works on the database itself, so it is for the operator: 0 if every report comes out the same byte for
    byte, else 1.
    """
    settings = load_settings()
    if verify:
        if policy or server:
            raise click.UsageError(
                "--verify takes the runs' own policies, and the database instead of a server"
            )
        ctx.exit(_verify(settings, run_id))
    if not (run_id and policy):
        raise click.UsageError("RUN and --policy are needed, or --verify")
    check_output(output)
    asked = read_policy_words(policy, settings)
    with interruptible(), existing_service(settings, server) as client:
        status = client.rejudge(run_id, asked)
        ctx.exit(print_reports([status], Service(client=client), format_name, output))


def read_policy_words(policy: str, settings: Settings) -> str | dict[str, Any]:
    """The name as it is, or the file's document. Raises UnreadableInput."""
    if not is_file_name(policy):
        return policy
    return read_document(Path(policy), settings)


def _verify(settings: Settings, run_id: str | None) -> ExitCode:
    from gatekeeper.services.finish import NotJudged
    from gatekeeper.services.rejudge import differences, list_finished  # scipy takes a second

    checked, differing, unjudged = 0, 0, 0
    with interruptible(), open_database(settings) as sessions:
        asked = [(run_id_of(run_id), "")] if run_id else list_finished(sessions)
        for found, name in asked:
            try:
                places = differences(sessions, found)
            except NotJudged:
                unjudged += 1
                continue
            checked += 1
            if places:
                differing += 1
                more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
                click.echo(f"differs  {found}  {name}  at {', '.join(places[:SHOWN])}{more}")
    click.echo(f"{checked - differing} of {checked} reports reproduced; {unjudged} runs were never judged")
    return ExitCode.FAIL if differing else ExitCode.PASS
