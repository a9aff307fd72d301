"""`gatekeeper promote` and `gatekeeper reference`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

import click
import yaml

from gatekeeper.cli.environment import existing_service, load_settings, say, server_option
from gatekeeper.client import Document

EXPORTS: Final[Mapping[str, Callable[[Document], str]]] = {
    "command": lambda found: str(found["command"]),
    "args": lambda found: yaml.safe_dump({"args": list(found["flags"])}, sort_keys=False).rstrip(),
    "measured": lambda found: json.dumps(found["measured_argv"]),
    "json": lambda found: json.dumps(found, indent=2, ensure_ascii=False),
}
"""Format -> what is printed: a `vllm serve` line, a Kubernetes `args` list, the very argv that passed, everything."""

export_option = click.option(
    "--format", "format_name", type=click.Choice(list(EXPORTS)), default="command", show_default=True
)


@click.command()
@click.argument("run_id", metavar="RUN")
@server_option
@export_option
def promote(*, run_id: str, server: str | None, format_name: str) -> None:
    """Make the configuration that passed the model's reference, and print the engine's arguments to roll out.

    Only PASS is promoted. A later change may say `baseline: promoted` to be held against its
    scheduling, reuse and engine arguments with a 16-bit full cache.
    """
    with existing_service(load_settings(), server) as client:
        found = client.promote(run_id)
    say(f"{found['model']}: the candidate of run {run_id} is the reference now")
    click.echo(EXPORTS[format_name](found))


@click.command()
@click.argument("model")
@server_option
@export_option
def reference(*, model: str, server: str | None, format_name: str) -> None:
    """Print the engine's arguments of a model's reference."""
    with existing_service(load_settings(), server) as client:
        found = client.reference(model)
    click.echo(EXPORTS[format_name](found))
