"""`gatekeeper schema`: JSON Schemas for editors and for programs."""

from __future__ import annotations

import json

import click

from gatekeeper.domain.policy_schema import policy_schema
from gatekeeper.domain.report_schema import report_schema


@click.command()
@click.argument("name", type=click.Choice(["report", "policy"]))
def schema(*, name: str) -> None:
    """Print the JSON Schema of reports (what `--format json` and the API answer) or of policy files."""
    made = report_schema() if name == "report" else policy_schema()
    click.echo(json.dumps(made, indent=2, ensure_ascii=False))
