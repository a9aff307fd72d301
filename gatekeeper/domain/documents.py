"""From a text document (JSON or YAML) to a typed value, with errors that name the field and what is allowed."""

from __future__ import annotations

import json
from typing import Any, Final, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gatekeeper.domain.change import Change
from gatekeeper.domain.errors import FieldProblem, InvalidInput, UnreadableInput

MAX_DEPTH: Final = 12
MAX_NODES: Final = 2_000
MAX_NUMBER_LENGTH: Final = 400
"""Characters of a number; more than any that a float holds has."""


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases (so no expansion bombs), duplicate keys and scalars that are not what they claim to be."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise UnreadableInput("YAML aliases are not accepted")
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        if number and len(node.value) > MAX_NUMBER_LENGTH:
            problem = f"a number of more than {MAX_NUMBER_LENGTH} characters"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        try:
            return super().construct_object(node, deep=deep)
        except (
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
        ) as error:  # of `0x_`, 2026-99-99, !!bool x
            problem = f"{node.value!r:.80} is no {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if not isinstance(key, str):
                raise UnreadableInput(f"key {key!r} is not text")
            if keys.count(key) > 1:
                raise UnreadableInput(f"key {key!r} appears twice")
        return super().construct_mapping(node, deep=deep)


def parse_document(text: str) -> dict[str, Any]:
    """Parse a JSON or YAML mapping. Raises UnreadableInput.

    Refuses aliases, duplicate keys, nesting beyond MAX_DEPTH, more than MAX_NODES values, and text that cannot be
    stored. JSON is read as such first, for YAML knows neither its tabs nor its exponents.
    """
    document = _parse_json(text) if text.lstrip().startswith("{") else None
    if document is None:
        document = _parse_yaml(text)
    if not isinstance(document, dict):
        raise UnreadableInput(f"expected a mapping of fields, not {type(document).__name__}")
    _refuse_oversized(document)
    return document


def parse_value(text: str) -> Any:
    """Parse a single value as YAML has it, within the limits of `parse_document`. Raises UnreadableInput."""
    value = _parse_yaml(text)
    _refuse_oversized(value)
    return value


def _parse_json(text: str) -> Any:
    """The value, or None if this is not JSON."""

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            raise UnreadableInput(f"key {next(key for key in keys if keys.count(key) > 1)!r} appears twice")
        return dict(pairs)

    def finite(constant: str) -> float:
        raise UnreadableInput(f"{constant} is not a number that JSON has")

    try:
        return json.loads(text, object_pairs_hook=without_duplicates, parse_constant=finite)
    except RecursionError as error:
        raise UnreadableInput(f"nested deeper than {MAX_DEPTH}") from error
    except ValueError:
        return None


def _parse_yaml(text: str) -> Any:
    try:
        depth = 0
        for nodes, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader), start=1):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH or nodes > 2 * MAX_NODES:
                raise UnreadableInput(f"nested deeper than {MAX_DEPTH} or larger than {MAX_NODES} values")
        return yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader subclass
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableInput(" ".join(str(error).split())) from error


def _refuse_oversized(document: Any) -> None:
    """Walk a parsed document. Raises UnreadableInput."""
    waiting, nodes = [(document, 1)], 0
    while waiting:
        value, depth = waiting.pop()
        nodes += 1
        if depth > MAX_DEPTH + 1 or nodes > 2 * MAX_NODES:
            raise UnreadableInput(f"nested deeper than {MAX_DEPTH} or larger than {MAX_NODES} values")
        if isinstance(value, str) and any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value):
            raise UnreadableInput("text with NUL or half a surrogate pair")
        if isinstance(value, dict):
            waiting += [(entry, depth + 1) for pair in value.items() for entry in pair]
        elif isinstance(value, list):
            waiting += [(entry, depth + 1) for entry in value]


def parse_change(document: dict[str, Any]) -> Change:
    """Validate a change's document. Raises InvalidInput with one problem per wrong field."""
    try:
        return Change.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(field_problems(error, Change)) from error


def field_problems(error: ValidationError, model: type[BaseModel] | None = None) -> list[FieldProblem]:
    """Turn pydantic's errors into field, problem and what is allowed. `model`, if given, failed to validate.

    A list that is too short only because its entries were refused is no problem of its own.
    """
    found = error.errors(include_url=False)
    places = [details["loc"] for details in found]
    return [
        field_problem(details, model)
        for details in found
        if details["type"] != "too_short" or not any(_is_within(place, details["loc"]) for place in places)
    ]


def _is_within(place: tuple[int | str, ...], outer: tuple[int | str, ...]) -> bool:
    return len(place) > len(outer) and place[: len(outer)] == outer


def field_problem(details: ErrorDetails, model: type[BaseModel] | None = None) -> FieldProblem:
    """Turn one of pydantic's errors into field, problem and what is allowed."""
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
            tags = _known_tags(model, details["loc"], key) if model else []
            return FieldProblem(field=f"{field}.{key}", problem="is missing", allowed=", ".join(tags))
        case "extra_forbidden":
            keys = _known_keys(model, details["loc"]) if model else []
            return FieldProblem(field=field, problem="unknown key", allowed=", ".join(keys))
        case "missing":
            return FieldProblem(field=field, problem="is missing")
        case "literal_error":
            return FieldProblem(
                field=field,
                problem=f"unknown {details['input']!r}",
                allowed=str(context["expected"]).replace("'", ""),
            )
        case "value_error":
            return FieldProblem(field=field, problem=str(context["error"]))
        case _:
            return FieldProblem(
                field=field,
                problem=f"got {details['input']!r:.80}",
                allowed=details["msg"].removeprefix("Input should be "),
            )


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys of the model that `location` leads into; of a union, the member that the location names by its tag."""
    return list(
        dict.fromkeys(key for known in _models_at(model, location[:-1]) for key in known.model_fields)
    )


def _known_tags(model: type[BaseModel], location: tuple[int | str, ...], key: str) -> list[str]:
    """What may stand under `key`, by which the union that `location` leads to tells its members apart."""
    members = (known for known in _models_at(model, location) if key in known.model_fields)
    return list(dict.fromkeys(str(tag) for member in members for tag in _literals(member.model_fields[key])))


def _models_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[type[BaseModel]]:
    models = [model]
    for part in (part for part in location if isinstance(part, str)):  # an index leads to the same model
        annotations = [known.model_fields[part].annotation for known in models if part in known.model_fields]
        tagged = [
            known
            for known in models
            if any(part in _literals(field) for field in known.model_fields.values())
        ]
        models = [found for annotation in annotations for found in _models_in(annotation)] or tagged
    return models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for member in get_args(annotation) for found in _models_in(member)]


def _literals(field: FieldInfo) -> tuple[Any, ...]:
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _path(location: tuple[int | str, ...]) -> str:
    """Join a location with dots, without the tags that pydantic adds for the chosen member of a union."""
    tagged = ("quantization", "eviction", "prompt", "decode", "other")
    parts = [part for before, part in zip(("", *location), location, strict=False) if before not in tagged]
    return ".".join(str(part) for part in parts)
