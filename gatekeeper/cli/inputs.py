"""From the command line's words to a change's document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatekeeper.calibrations import list_calibrations
from gatekeeper.catalog import get_policy, get_suite
from gatekeeper.domain.documents import parse_document
from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput
from gatekeeper.domain.plan import make_plan
from gatekeeper.embedded import bundled_model
from gatekeeper.files import read_text
from gatekeeper.services.intake import read_change
from gatekeeper.services.promote import PROMOTED
from gatekeeper.settings import Settings

Document = dict[str, Any]


def read_words(words: Sequence[str], settings: Settings) -> Document:
    """Read `FILE` or `vllm serve MODEL …`. Raises InvalidInput or UnreadableInput."""
    match list(words):
        case ["vllm", *_]:
            return {"command": list(words)}
        case [path]:
            return read_document(Path(path), settings)
        case _:
            allowed = "one FILE, `-- vllm serve MODEL …`, or --detected"
            raise InvalidInput(
                [FieldProblem(field="change", problem=f"got {len(words)} words", allowed=allowed)]
            )


def read_document(path: Path, settings: Settings) -> Document:
    """Read a JSON or YAML file. Raises UnreadableInput naming it."""
    text = read_text(path, limit_bytes=settings.max_body_bytes)
    try:
        return parse_document(text)
    except UnreadableInput as error:
        raise UnreadableInput(f"{path}: {error.detail}") from error


def overridden(document: Document, *, suite: str | None, policy: str | None) -> Document:
    """The document with what the command line says instead."""
    given = {"suite": suite, "policy": policy}
    return document | {key: value for key, value in given.items() if value is not None}


def check(document: Document, settings: Settings) -> None:
    """Refuse what the embedded service would refuse, before it is started. Raises InvalidInput."""
    if document.get("baseline") == PROMOTED:
        return  # only the database knows what that is
    change = read_change(document, settings=settings)
    suite = get_suite(change.suite, extra=settings.catalog_dir)
    policy = get_policy(change.policy or suite.policy, extra=settings.catalog_dir)
    if change.model == bundled_model.NAME:  # of other models only the registry knows
        make_plan(
            change,
            model=bundled_model.bundled_model(settings.root),
            suite=suite,
            policy=policy,
            device=settings.device,
            allowed_arguments=settings.allowed_engine_args,
            calibrations=list_calibrations(settings.root),
        )
