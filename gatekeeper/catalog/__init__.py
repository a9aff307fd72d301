"""Suites, policies and presets by name: YAML files bundled here, and the operator's own beside or over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from gatekeeper.domain.change import Name
from gatekeeper.domain.documents import field_problems, parse_document
from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.preset import Preset
from gatekeeper.domain.suite import Suite
from gatekeeper.files import read_text

Document = TypeVar("Document", Policy, Preset, Suite)
BUNDLED = Path(__file__).parent
NAME: Final = TypeAdapter[str](Name)
LIMIT_BYTES: Final = 1_000_000
"""Of one file of the catalog."""


def _read(kind: type[Document], path: Path) -> Document:
    text = read_text(path, limit_bytes=LIMIT_BYTES)
    try:
        document = parse_document(text)
    except UnreadableInput as error:
        raise UnreadableInput(f"{path.name}: {error.detail}") from error
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(field_problems(error, kind)) from error


read_policy: Callable[[Path], Policy] = partial(_read, Policy)
read_suite: Callable[[Path], Suite] = partial(_read, Suite)
read_preset: Callable[[Path], Preset] = partial(_read, Preset)


def list_names(folder: str, extra: Path | None) -> list[str]:
    """The names known in `folder` ("suites", "policies" or "presets"), sorted.

    Files whose names no change can say (hidden ones, such that are no text) are passed over.
    """
    roots = [BUNDLED] + ([extra] if extra else [])
    return sorted(
        {path.stem for root in roots for path in (root / folder).glob("*.yaml") if _is_name(path.stem)}
    )


def _is_name(stem: str) -> bool:
    try:
        return NAME.validate_python(stem) == stem == stem.strip()
    except ValidationError:
        return False


def _path(folder: str, field: str, name: str, extra: Path | None) -> Path:
    """The file of that name, the operator's first. Raises InvalidInput naming the known ones."""
    known = list_names(folder, extra)
    if name not in known:
        problem = FieldProblem(field=field, problem=f"unknown {name!r}", allowed=", ".join(known))
        raise InvalidInput([problem])
    own = extra / folder / f"{name}.yaml" if extra else None
    if own is not None and (own.exists() or own.is_symlink()):  # a link to nothing is refused, not replaced
        return own
    return BUNDLED / folder / f"{name}.yaml"


def _get(kind: type[Document], path: Path) -> Document:
    """What a file of the catalog says. Raises UnreadableInput, and InvalidInput naming the file and its field.

    A change is judged by what it names, so a file that calls itself something else is refused.
    """
    place = f"{path.parent.name}/{path.name}"
    try:
        document = _read(kind, path)
    except InvalidInput as error:
        raise InvalidInput([replace(one, field=f"{place}: {one.field}") for one in error.problems]) from error
    if document.name != path.stem:
        problem = FieldProblem(
            field=f"{place}: name", problem=f"{document.name!r} is not the file's", allowed=path.stem
        )
        raise InvalidInput([problem])
    return document


def get_policy(name: str, *, extra: Path | None = None) -> Policy:
    """The policy of that name. Raises InvalidInput naming the known ones."""
    return _get(Policy, policy_path(name, extra=extra))


def policy_path(name: str, *, extra: Path | None = None) -> Path:
    """The file of the policy of that name. Raises InvalidInput naming the known ones."""
    return _path("policies", "policy", name, extra)


def get_suite(name: str, *, extra: Path | None = None) -> Suite:
    """The suite of that name. Raises InvalidInput naming the known ones."""
    return _get(Suite, _path("suites", "suite", name, extra))


def get_preset(name: str, *, extra: Path | None = None) -> Preset:
    """The preset of that name. Raises InvalidInput naming the known ones."""
    return _get(Preset, preset_path(name, extra=extra))


def preset_path(name: str, *, extra: Path | None = None) -> Path:
    """The file of the preset of that name. Raises InvalidInput naming the known ones."""
    return _path("presets", "preset", name, extra)
