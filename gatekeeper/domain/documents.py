"""From a text document (JSON or YAML) to a typed value, with errors that name the field and what is allowed."""

from __future__ import annotations

from typing import Any, Final

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gatekeeper.domain.change import Change
from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput

MAX_DEPTH: Final = 12
MAX_NODES: Final = 2_000


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases (so no expansion bombs) and without duplicate keys."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise UnreadableInput("YAML aliases are not accepted")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        for key in keys:
            if not isinstance(key, str):
                raise UnreadableInput(f"key {key!r} is not text")
            if keys.count(key) > 1:
                raise UnreadableInput(f"key {key!r} appears twice")
        return super().construct_mapping(node, deep=deep)


def parse_document(text: str) -> dict[str, Any]:
    """Parse a JSON or YAML mapping (JSON is read as YAML). Raises UnreadableInput.

    Refuses aliases, duplicate keys, nesting beyond MAX_DEPTH and more than MAX_NODES values.
    """
    try:
        depth = nodes = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            nodes += 1
            if depth > MAX_DEPTH or nodes > 2 * MAX_NODES:
                raise UnreadableInput(f"nested deeper than {MAX_DEPTH} or larger than {MAX_NODES} values")
        document = yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader subclass
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableInput(" ".join(str(error).split())) from error
    if not isinstance(document, dict):
        raise UnreadableInput(f"expected a mapping of fields, not {type(document).__name__}")
    return document


def parse_change(document: dict[str, Any]) -> Change:
    """Validate a change's document. Raises InvalidInput with one problem per wrong field."""
    try:
        return Change.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(field_problems(error)) from error


def field_problems(error: ValidationError) -> list[FieldProblem]:
    """Turn pydantic's errors into field, problem and what is allowed."""
    return [_field_problem(details) for details in error.errors(include_url=False)]


def _field_problem(details: ErrorDetails) -> FieldProblem:
    context = details.get("ctx", {})
    field = _path(details["loc"]) or "document"
    match details["type"]:
        case "union_tag_invalid":
            key = str(context["discriminator"]).strip("'")
            return FieldProblem(
                field=f"{field}.{key}",
                problem=f"unknown {context['tag']!r}",
                allowed=str(context["expected_tags"]).replace("'", ""),
            )
        case "union_tag_not_found":
            key = str(context["discriminator"]).strip("'")
            return FieldProblem(field=f"{field}.{key}", problem="is missing")
        case "extra_forbidden":
            return FieldProblem(field=field, problem="unknown key")
        case "missing":
            return FieldProblem(field=field, problem="is missing")
        case "literal_error":
            return FieldProblem(
                field=field, problem=f"unknown {details['input']!r}", allowed=str(context["expected"]).replace("'", "")
            )
        case "value_error":
            return FieldProblem(field=field, problem=str(context["error"]))
        case _:
            return FieldProblem(field=field, problem=f"got {details['input']!r:.80}", allowed=details["msg"])


def _path(location: tuple[int | str, ...]) -> str:
    """Join a location with dots, without the tags that pydantic adds for the chosen member of a union."""
    tagged = ("quantization", "eviction")
    parts = [part for before, part in zip(("", *location), location, strict=False) if before not in tagged]
    return ".".join(str(part) for part in parts)
