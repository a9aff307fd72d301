"""The operator's own lm-eval tasks and prompts: the folder that GATEKEEPER_TASKS_DIR names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import yaml

from gatekeeper.domain.errors import UnreadableInput
from gatekeeper.files import open_file

VARIABLE = "GATEKEEPER_TASKS_DIR"


def read_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name below the folder and content of every file, in a fixed order. Raises UnreadableInput naming a file.

    Hidden ones and Python's caches are passed over. Links are followed, but no folder is read twice.
    """
    if not folder.is_dir():
        raise UnreadableInput(f"{VARIABLE}: {folder} is no folder")
    for path in _walk(folder, seen=set()):
        try:
            with open_file(path) as file:
                yield str(path.relative_to(folder)), file.read()
        except UnreadableInput as error:
            raise UnreadableInput(f"{VARIABLE}: {error.detail}") from error
        except OSError as error:
            raise UnreadableInput(f"{VARIABLE}: {path}: {error.strerror}") from error


def _walk(folder: Path, *, seen: set[Path]) -> Iterator[Path]:
    seen.add(folder.resolve())
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise UnreadableInput(f"{VARIABLE}: {folder}: {error.strerror}") from error
    for entry in entries:
        if entry.name.startswith(".") or entry.name == "__pycache__" or entry.suffix == ".pyc":
            continue
        if not entry.is_dir():
            yield entry
        elif entry.resolve() not in seen:
            yield from _walk(entry, seen=seen)


def copy_tasks(source: Path, target: Path, *, taken: Collection[str]) -> None:
    """Copy everything for lm-eval, which passes over in silence what it cannot read.

    Raises UnreadableInput for YAML that is none, and for a task that has one of the names `taken`.
    """
    for name, content in read_files(source):
        if name.endswith(".yaml") and (task := _task_of(name, content)) in taken:
            raise UnreadableInput(f"{VARIABLE}: {name}: task: {task} is the name of a bundled one")
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _task_of(name: str, content: bytes) -> str | None:
    """The task that a file names, without constructing what its tags stand for."""
    try:
        root = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise UnreadableInput(f"{VARIABLE}: {name} is no YAML: {' '.join(str(error).split())}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{VARIABLE}: {name} is no YAML: {type(error).__name__}") from error
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return next((str(value.value) for key, value in pairs if key.value == "task"), None)
