"""`gatekeeper detect`: the changes that a branch makes to serving manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import click
import yaml

from gatekeeper.cli.environment import load_settings, say
from gatekeeper.detecting.changes import Detected
from gatekeeper.detecting.repository import commit_of
from gatekeeper.detecting.repository import detect as detect_in
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.settings import Settings

base_option = click.option(
    "--base",
    metavar="REF",
    envvar="GATEKEEPER_BASE",
    default="HEAD~1",
    show_default=True,
    help="What the branch is held against, such as origin/main; its own changes since the fork count.",
)
model_option = click.option(
    "--model", metavar="NAME", help="The model as registered, where manifests call it otherwise."
)


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@base_option
@model_option
@click.option("--suite", metavar="NAME", help="Put into every change.")
@click.option("--policy", metavar="NAME", help="Put into every change.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write one change file each into this folder instead of printing them.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines instead of YAML.")
def detect(
    *,
    paths: tuple[str, ...],
    base: str,
    model: str | None,
    suite: str | None,
    policy: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find what a branch changes in the way engines are served, as change files.

    Reads Kubernetes and docker-compose YAML, Helm values (vLLM's production stack, and charts that state a command) and
    shell scripts. The old version's arguments become the baseline, the new one's the candidate. PATHs are git's.

    `gatekeeper gate --detected` gates the same without files in between.
    """
    found = detected_changes(paths, base=base, model=model, settings=load_settings())
    if not found:
        say("no change of a KV configuration was found")
    named = {"suite": suite, "policy": policy}
    extra = {key: value for key, value in named.items() if value is not None}
    if output is not None:
        _make_folder(output)
    for number, change in enumerate(found, start=1):
        document = change.document | extra
        if output is not None:
            words = re.sub(r"[^\w.]+", "-", str(document["name"])).strip("-.")
            target = output / f"{number:02}-{words}.yaml"
            target.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
            click.echo(str(target))
        elif as_json:
            click.echo(json.dumps(document, ensure_ascii=False))
        else:
            click.echo(("---\n" if number > 1 else "") + yaml.safe_dump(document, sort_keys=False), nl=False)


def _make_folder(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{output} cannot be made: {error.strerror}"
        raise InvalidInput([FieldProblem(field="output", problem=problem, allowed="a folder")]) from error


def detected_changes(
    paths: Sequence[str], *, base: str, model: str | None, settings: Settings
) -> list[Detected]:
    """The changes of the repository here; what was passed over or left out is said. Raises InvalidInput."""
    folder = Path.cwd()
    allowed = settings.allowed_engine_args
    changes = []
    for found in detect_in(folder, base=base, paths=paths, allowed=allowed, model=model):
        if isinstance(found, str):
            say(found)
            continue
        say(f"{found.path}: {found.place}")
        for note in found.notes:
            say(f"  {note}")
        if "$" in str(found.document["model"]):
            problem = f"{found.document['model']!r} is only known where it runs"
            raise InvalidInput(
                [FieldProblem(field=f"{found.path}: model", problem=problem, allowed="--model NAME")]
            )
        changes.append(found)
    commit = commit_of(folder) if changes else ""
    for change in changes:
        change.document["ref"] = {"commit": commit, "path": change.path}
    return changes
