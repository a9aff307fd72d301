"""`gatekeeper policy`: look at policies, and write one with the editor's and this program's help."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gatekeeper import catalog
from gatekeeper.cli.environment import load_settings
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.policy_schema import policy_schema
from gatekeeper.domain.sentence import demand
from gatekeeper.files import read_text
from gatekeeper.reporting.text import wrapped


@click.group()
def policy() -> None:
    """Policies: the rules that a change must pass. The operator's own are in GATEKEEPER_CATALOG_DIR."""


@policy.command(name="list")
def list_policies() -> None:
    """Show the known policies."""
    extra = load_settings().catalog_dir
    for name in catalog.list_names("policies", extra):
        click.echo("\n".join([name, *wrapped(_description(name, extra), indent="    ")]))


def _description(name: str, extra: Path | None) -> str:
    try:
        return catalog.get_policy(name, extra=extra).description or "no description"
    except GatekeeperError as error:
        return f"cannot be used: {error}"


@policy.command()
@click.argument("name")
def show(*, name: str) -> None:
    """Print a policy's file, to read or to start one's own from."""
    path = catalog.policy_path(name, extra=load_settings().catalog_dir)
    click.echo(read_text(path, limit_bytes=catalog.LIMIT_BYTES), nl=False)


@policy.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
def check(*, path: Path) -> None:
    """Validate a policy file and say each of its rules as a sentence. Exit code 0, or 4 naming what is wrong."""
    click.echo("\n".join(_sentences(catalog.read_policy(path))))


def _sentences(checked: Policy) -> list[str]:
    count = len(checked.rules)
    errors = f"a wrong PASS and a wrong FAIL at most {100 * checked.alpha:g}% each"
    lines = [f"{checked.name}: {count} rule{'s' if count > 1 else ''}; {errors}"]
    for rule in checked.rules:
        lines += [f"- {demand(rule)}", *wrapped(rule.reason, indent="    ")]
    return lines


@policy.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for completion in editors.

    Save it, and begin the policy with `# yaml-language-server: $schema=policy.schema.json`.
    """
    click.echo(json.dumps(policy_schema(), indent=2, ensure_ascii=False))
