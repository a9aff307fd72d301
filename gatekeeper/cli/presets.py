"""`gatekeeper presets`: configurations worth trying, by kind of workload."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from gatekeeper import catalog
from gatekeeper.cli.environment import load_settings
from gatekeeper.domain.errors import FieldProblem, GatekeeperError, InvalidInput
from gatekeeper.domain.preset import Preset
from gatekeeper.embedded import bundled_model
from gatekeeper.reporting.text import wrapped


@click.group(invoke_without_command=True)
@click.pass_context
def presets(ctx: click.Context) -> None:
    """Scenario presets: what to try, with suite and policy. The operator's own are in GATEKEEPER_CATALOG_DIR."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_presets)


@presets.command(name="list")
def list_presets() -> None:
    """Show the known presets and their candidates."""
    extra = load_settings().catalog_dir
    for name in catalog.list_names("presets", extra):
        click.echo("\n".join(_entry(name, extra)))


def _entry(name: str, extra: Path | None) -> list[str]:
    try:
        preset = catalog.get_preset(name, extra=extra)
    except GatekeeperError as error:
        return [name, *wrapped(f"cannot be used: {error}", indent="    ")]
    head = f"{name}  (suite {preset.suite}, policy {preset.policy})"
    names = "; ".join(candidate.name for candidate in preset.candidates)
    return [head, *wrapped(preset.description, indent="    "), *wrapped(f"tries: {names}", indent="    ")]


@presets.command()
@click.argument("name")
@click.option("--model", default=bundled_model.NAME, show_default=True, help="The model of the changes.")
@click.option("--candidate", metavar="NAME", help="One of them. Default: all, as YAML documents.")
def show(*, name: str, model: str, candidate: str | None) -> None:
    """Print a preset's candidates as change files, to gate or to start one's own from."""
    preset = catalog.get_preset(name, extra=load_settings().catalog_dir)
    changes = preset.changes(model)
    chosen = [_named(preset, candidate)] if candidate else list(changes)
    click.echo("---\n".join(_file(preset, changes[one], one) for one in chosen), nl=False)


def _named(preset: Preset, candidate: str) -> str:
    names = [known.name for known in preset.candidates]
    if candidate not in names:
        problem = FieldProblem(field="candidate", problem=f"unknown {candidate!r}", allowed=", ".join(names))
        raise InvalidInput([problem])
    return candidate


def _file(preset: Preset, change: dict[str, object], name: str) -> str:
    reason = next(candidate.reason for candidate in preset.candidates if candidate.name == name)
    comment = "".join(f"# {line}\n" for line in wrapped(reason))
    return comment + yaml.safe_dump(change, sort_keys=False, allow_unicode=True)
