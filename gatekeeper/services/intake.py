"""From what a caller sends, a change's document or a `vllm serve` command line, to a plan."""

from __future__ import annotations

import shlex
from typing import Any, Final

from sqlalchemy.orm import Session

from gatekeeper import catalog
from gatekeeper.calibrations import list_calibrations
from gatekeeper.domain.change import Change
from gatekeeper.domain.documents import parse_change
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.plan import Model, Plan, make_plan
from gatekeeper.domain.vllm_command import parse_serve_command
from gatekeeper.settings import Settings
from gatekeeper.storage import models

BESIDE_COMMAND: Final = ("name", "deployment", "suite", "policy", "ref")
"""What a body with a `command` may also say."""


def read_change(document: dict[str, Any] | Change, *, settings: Settings) -> Change:
    """Validate a document. Raises InvalidInput with one problem per wrong field."""
    if isinstance(document, Change):
        return document
    if "command" not in document:
        return parse_change(document)
    unknown = [key for key in document if key not in ("command", *BESIDE_COMMAND)]
    if unknown:
        allowed = ", ".join(BESIDE_COMMAND)
        raise InvalidInput(
            [
                FieldProblem(field=key, problem="unknown key beside a command", allowed=allowed)
                for key in unknown
            ]
        )
    words = _words(document["command"])
    translated = parse_serve_command(words, allowed_arguments=settings.allowed_engine_args)
    return parse_change(translated | {key: document[key] for key in BESIDE_COMMAND if key in document})


def resolve(session: Session, change: Change, *, settings: Settings) -> Plan:
    """Resolve the names that a change uses and make its plan. Raises InvalidInput."""
    suite = catalog.get_suite(change.suite, extra=settings.catalog_dir)
    plan = make_plan(
        change,
        model=get_named_model(session, change.model),
        suite=suite,
        policy=catalog.get_policy(change.policy or suite.policy, extra=settings.catalog_dir),
        device=settings.device,
        allowed_arguments=settings.allowed_engine_args,
        calibrations=list_calibrations(settings.root),
    )
    engine_flags(plan)
    return plan


def engine_flags(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The flags that put each arm's configuration into effect. Raises InvalidInput where there are none."""
    flags, problems = {}, []
    for role, arm in (("baseline", plan.baseline), ("candidate", plan.candidate)):
        try:
            flags[role] = arm.serve_flags
        except ValueError as error:
            problems.append(FieldProblem(field=role, problem=str(error)))
    if problems:
        raise InvalidInput(problems)
    return flags


def get_named_model(session: Session, name: str) -> Model:
    """The model that a caller named. Raises InvalidInput naming the known ones."""
    model = models.find_model(session, name)
    if model is None:
        known = ", ".join(known.name for known in models.list_models(session)) or "none is registered yet"
        raise InvalidInput([FieldProblem(field="model", problem=f"unknown {name!r}", allowed=known)])
    return model


def _words(command: Any) -> list[str]:
    problem = "not a command line"
    try:
        words = shlex.split(command.replace("\\\n", " ")) if isinstance(command, str) else command
    except ValueError as error:
        words, problem = None, f"not a command line: {error}"
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InvalidInput(
            [FieldProblem(field="command", problem=problem, allowed="text or a list of words")]
        )
    return words
