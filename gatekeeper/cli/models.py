"""`gatekeeper model`: the operator's registry, straight in the database. Callers only ever name models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from gatekeeper.cli.database import open_database
from gatekeeper.cli.environment import load_settings
from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput
from gatekeeper.domain.kv_config import NoQuantization
from gatekeeper.domain.kv_memory import ModelShape, kv_bytes_per_token
from gatekeeper.domain.plan import Model
from gatekeeper.files import read_text
from gatekeeper.reporting.text import columns
from gatekeeper.services import models

CONFIG_LIMIT_BYTES = 1_000_000


@click.group()
def model() -> None:
    """The models that changes may name. For the operator: this works on the database itself."""


@model.command(name="list")
def list_models() -> None:
    """Show the registered models."""
    with open_database(load_settings()) as sessions:
        rows = [
            (known.name, _bytes(known.shape), known.revision or "-", known.source)
            for known in models.list_models(sessions)
        ]
    if not rows:
        click.echo("none is registered; `gatekeeper model add NAME --source PATH` registers one")
        return
    click.echo("\n".join(columns(("name", "KV bytes/token", "revision", "source"), rows)))


@model.command()
@click.argument("name")
@click.option(
    "--source",
    required=True,
    metavar="PATH|HUB_ID",
    help="A directory or GGUF file on the workers, or a hub id.",
)
@click.option("--revision", help="The hub revision to pin.")
@click.option(
    "--config", type=click.Path(path_type=Path), help="config.json of the model. Default: the directory's."
)
def add(*, name: str, source: str, revision: str | None, config: Path | None) -> None:
    """Register a model, or replace the one of that name."""
    entry = make_entry(name, source=source, revision=revision, config=config)
    with open_database(load_settings()) as sessions:
        models.register_model(sessions, entry)
    click.echo(
        f"{entry.name} is registered: {entry.source}, {_bytes(entry.shape)} KV bytes per token in 16 bit"
    )
    if entry.shape is None:
        click.echo(
            "Its shape is not known: no KV bytes are predicted and checked. --config names its config.json.",
            err=True,
        )


@model.command()
@click.argument("name")
def forget(*, name: str) -> None:
    """Refuse a model from now on. Runs that named it stay."""
    with open_database(load_settings()) as sessions:
        models.forget_model(sessions, name)
    click.echo(f"{name} is no longer registered")


def make_entry(name: str, *, source: str, revision: str | None, config: Path | None) -> Model:
    """The registry's entry. Raises InvalidInput or UnreadableInput."""
    folder = Path(source).expanduser()
    is_folder, is_gguf = folder.is_dir(), folder.suffix == ".gguf" and folder.is_file()
    if not (is_folder or is_gguf) and (source.startswith(("/", ".", "~")) or source.count("/") != 1):
        allowed = "an existing directory, a GGUF file, or a hub id such as org/name"
        raise InvalidInput(
            [FieldProblem(field="source", problem=f"{source!r} does not exist", allowed=allowed)]
        )
    if config is None and is_folder:
        config = folder / "config.json"
    shape = ModelShape.from_hf_config(read_config(config)) if config else None
    where = str(folder.resolve()) if is_folder or is_gguf else source
    try:
        return Model(name=name, source=where, revision=revision, shape=shape)
    except ValidationError as error:
        raise InvalidInput(field_problems(error)) from error


def read_config(path: Path) -> dict[str, Any]:
    """A model's `config.json`. Raises UnreadableInput."""
    try:
        document = json.loads(read_text(path, limit_bytes=CONFIG_LIMIT_BYTES))
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path} is not JSON") from error
    if not isinstance(document, dict):
        raise UnreadableInput(f"{path} is not a model's config.json")
    return document


def _bytes(shape: ModelShape | None) -> str:
    return f"{kv_bytes_per_token(shape, NoQuantization()):,.0f}" if shape else "unknown"
