"""Suites, policies and presets by name: YAML files bundled here, and the operator's own beside or over them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from gatekeeper.domain.base import Closed
from gatekeeper.domain.documents import field_problems, parse_document
from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.preset import Preset
from gatekeeper.domain.suite import Suite

Document = TypeVar("Document", bound=Closed)
BUNDLED = Path(__file__).parent


def _read(kind: type[Document], path: Path) -> Document:
    try:
        document = parse_document(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableInput(f"{path.name}: {error}") from error
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
    """The names known in `folder` ("suites", "policies" or "presets"), sorted."""
    roots = [BUNDLED] + ([extra] if extra else [])
    return sorted({path.stem for root in roots for path in (root / folder).glob("*.yaml")})


def _path(folder: str, field: str, name: str, extra: Path | None) -> Path:
    """The file of that name, the operator's first. Raises InvalidInput naming the known ones."""
    known = list_names(folder, extra)
    if name not in known:
        problem = FieldProblem(field=field, problem=f"unknown {name!r}", allowed=", ".join(known))
        raise InvalidInput([problem])
    own = extra / folder / f"{name}.yaml" if extra else None
    return own if own and own.exists() else BUNDLED / folder / f"{name}.yaml"


def get_policy(name: str, *, extra: Path | None = None) -> Policy:
    """The policy of that name. Raises InvalidInput naming the known ones."""
    return read_policy(policy_path(name, extra=extra))


def policy_path(name: str, *, extra: Path | None = None) -> Path:
    """The file of the policy of that name. Raises InvalidInput naming the known ones."""
    return _path("policies", "policy", name, extra)


def get_suite(name: str, *, extra: Path | None = None) -> Suite:
    """The suite of that name. Raises InvalidInput naming the known ones."""
    return read_suite(_path("suites", "suite", name, extra))


def get_preset(name: str, *, extra: Path | None = None) -> Preset:
    """The preset of that name. Raises InvalidInput naming the known ones."""
    return read_preset(preset_path(name, extra=extra))


def preset_path(name: str, *, extra: Path | None = None) -> Path:
    """The file of the preset of that name. Raises InvalidInput naming the known ones."""
    return _path("presets", "preset", name, extra)
