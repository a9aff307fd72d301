"""Write the reference pages, generated from the code: `.venv/bin/python scripts/reference.py docs/reference`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from gatekeeper import settings
from gatekeeper.app import create_app
from gatekeeper.cli import main as command_group
from gatekeeper.domain.metric import METRICS
from gatekeeper.settings import Settings


def commands() -> Iterator[str]:
    """Every command with its help."""
    yield "# Commands"
    yield from _commands(command_group, click.Context(command_group, info_name="gatekeeper"), level=2)


def _commands(command: click.Command, context: click.Context, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{context.command_path}`"
    yield f"```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for name, sub in sorted(command.commands.items()):
            yield from _commands(sub, click.Context(sub, info_name=name, parent=context), level=level + 1)


def environment() -> Iterator[str]:
    """Every setting with its variable, default and meaning."""
    yield "# Settings"
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    meanings = _attribute_docstrings(Path(settings.__file__))
    for name, field in Settings.model_fields.items():
        variable = name.upper() if field.validation_alias else f"GATEKEEPER_{name.upper()}"
        default = sorted(field.default) if isinstance(field.default, frozenset) else field.default
        rows.append(f"| `{variable}` | `{default}` | {_cell(meanings.get(name, ''))} |")
    yield "\n".join(rows)


def _attribute_docstrings(path: Path) -> dict[str, str]:
    """The string after each annotated attribute of the module's classes."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            for attribute, after in zip(node.body, node.body[1:], strict=False):
                match attribute, after:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(words))),
                    ):
                        found[name] = words
    return found


def metrics() -> Iterator[str]:
    """Every metric that a rule can name."""
    yield "# Metrics that rules can name"
    rows = ["| metric | what | unit | limits | probe |", "| --- | --- | --- | --- | --- |"]
    rows += [
        f"| `{metric.name}` | {_cell(metric.title)} | {metric.unit} | {', '.join(metric.forms)} | {metric.suite} |"
        for metric in METRICS.values()
    ]
    yield "\n".join(rows)


def api() -> Iterator[str]:
    """Every operation of the HTTP API."""
    yield "# HTTP API"
    yield "A running service describes itself in full at `/openapi.json`."
    for path, operations in create_app(Settings()).openapi()["paths"].items():
        for method, operation in operations.items():
            yield f"## `{method.upper()} {path}`"
            yield operation.get("description") or operation["summary"]
            answers = [
                f"- {code}: {answer['description']}" for code, answer in operation["responses"].items()
            ]
            yield "\n".join(answers)


PAGES = {"commands": commands, "settings": environment, "metrics": metrics, "api": api}


def write(folder: Path) -> None:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, parts in PAGES.items():
        (folder / f"{name}.md").write_text("\n\n".join(parts()) + "\n", encoding="utf-8")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
