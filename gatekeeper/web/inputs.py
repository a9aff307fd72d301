"""Inputs that follow a type: which kind each of its fields is, what it offers, and what leaving it open means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gatekeeper.web import filters
from gatekeeper.web.filters import Option

SKIPPED: Final = "skip_layers"
HINTS: Final[Mapping[str, str]] = {
    SKIPPED: "such as 0, 1",
    "prompt": "such as {policy: h2o, evicted_fraction: 0.5}",
    "decode": "such as {policy: streaming_llm, window: 508}",
    "groups": "such as [{layers: [0, 1], eviction: {policy: none}}]",
    "other": "such as {policy: sliding_window, window: 512}, else all tokens stay",
    "request_rate": "per second",
    "ttft_ms": "to the first token",
    "tpot_ms": "each further token",
    "e2e_ms": "to the end",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One input. `name`: the dotted place in the change's document; `hint`: of a list, what leaving it open means."""

    name: str
    label: str
    value: str
    hint: str = ""
    kind: Literal["text", "integer", "decimal", "list", "lines"] = "text"
    options: tuple[Option, ...] = ()


def typed_fields(
    place: str,
    kind: type[BaseModel],
    given: Mapping[str, str],
    *,
    names: Iterable[str] | None = None,
    open_means: str = "",
) -> Iterator[Field]:
    """The inputs of a type's fields, or of `names` among them; its own come before those that it inherits."""
    own_first = sorted(kind.model_fields, key=lambda name: name not in kind.__annotations__)
    for name in own_first if names is None else names:
        full = f"{place}.{name}".lstrip(".")
        yield _field(full, kind.model_fields[name], given.get(full, "").strip(), open_means)


def _field(name: str, field: FieldInfo, value: str, open_means: str) -> Field:
    last = name.rpartition(".")[2]
    default = "" if field.is_required() or field.default is None else str(field.default)
    offered = [option for option in _options(field.annotation) if option != default]
    if offered:
        hint = default or ("needed" if field.is_required() else open_means or "not stated")
        chosen = filters.choice(name, offered, "" if value == default else value)
        return Field(name=name, label=last, value=value, hint=hint, kind="list", options=chosen.options)
    hint = HINTS.get(last, "needed" if field.is_required() else f"else {default}" if default else "")
    kinds = _scalars(field.annotation)
    kind: Literal["integer", "decimal", "text"] = (
        "integer" if int in kinds else "decimal" if float in kinds else "text"
    )
    return Field(name=name, label=last, value=value, hint=hint, kind=kind)


def _options(annotation: Any) -> tuple[str, ...]:
    """What a field of one of a few values can be: a literal's members, or yes and no."""
    if annotation is bool:
        return ("true", "false")
    if get_origin(annotation) is Literal:
        return tuple(str(value) for value in get_args(annotation))
    return tuple(option for inner in get_args(annotation) for option in _options(inner))


def _scalars(annotation: Any) -> tuple[Any, ...]:
    """The types that a field's annotation is made of, lists left out."""
    if get_origin(annotation) is tuple:
        return ()
    inner = get_args(annotation)
    return tuple(kind for part in inner for kind in _scalars(part)) if inner else (annotation,)
