"""The filters of the run list: from the address to the query, and back into the form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args
from urllib.parse import urlencode

from pydantic import ValidationError

from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.eviction import Eviction
from gatekeeper.domain.kv_config import Quantization
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Verdict
from gatekeeper.services.history import RunFilters
from gatekeeper.web import links

FIELDS: Final = ("q", "verdict", "state", "model", "scheme", "eviction", "author", "ref", "since", "until")
LESS_USUAL: Final = ("eviction", "author", "ref", "since", "until")
PAGE_SIZE: Final = 50


def _names(union: object, field: str) -> tuple[str, ...]:
    """What the members of a discriminated union are called."""
    return tuple(
        name
        for member in get_args(get_args(union)[0])
        for name in get_args(member.model_fields[field].annotation)
    )


SCHEMES: Final = _names(Quantization, "scheme")
POLICIES: Final = _names(Eviction, "policy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One entry of a drop-down list."""

    value: str
    is_chosen: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A drop-down list."""

    name: str
    label: str
    options: tuple[Option, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterForm:
    """The form above the list, filled in as the address says."""

    q: str
    author: str
    ref: str
    since: str
    until: str
    choices: tuple[Choice, ...]
    is_active: bool
    is_more: bool
    """Whether one of the less usual filters is set."""


def read_filters(query: Mapping[str, str]) -> RunFilters:
    """The filters in an address; empty ones do not count. Raises InvalidInput naming the field and what is allowed."""
    given = {name: query[name].strip() for name in (*FIELDS, "cursor") if query.get(name, "").strip()}
    try:
        return RunFilters.model_validate(given | {"limit": PAGE_SIZE})
    except ValidationError as error:
        raise InvalidInput(field_problems(error)) from error


def filter_form(query: Mapping[str, str], *, models: Sequence[str]) -> FilterForm:
    """The form for an address. A value that no list knows is offered all the same, so that it stays visible."""
    chosen = {name: query.get(name, "").strip() for name in FIELDS}
    known: dict[str, Iterable[str]] = {
        "verdict": Verdict,
        "state": RunState,
        "model": models,
        "scheme": SCHEMES,
        "eviction": POLICIES,
    }
    return FilterForm(
        q=chosen["q"],
        author=chosen["author"],
        ref=chosen["ref"],
        since=chosen["since"],
        until=chosen["until"],
        choices=tuple(
            choice(name, [str(value) for value in values], chosen[name]) for name, values in known.items()
        ),
        is_active=any(chosen.values()),
        is_more=any(chosen[name] for name in LESS_USUAL),
    )


def address(query: Mapping[str, str], *, cursor: str | None = None) -> str:
    """The list with the same filters, from `cursor` on."""
    kept = {name: query[name] for name in FIELDS if query.get(name, "").strip()}
    words = urlencode(kept | ({"cursor": cursor} if cursor else {}))
    return f"{links.RUNS}?{words}" if words else links.RUNS


def choice(name: str, values: Sequence[str], chosen: str) -> Choice:
    """A drop-down list. A chosen value that is not in it is offered all the same."""
    offered = [*values, *([chosen] if chosen and chosen not in values else [])]
    options = tuple(Option(value=value, is_chosen=value == chosen) for value in offered)
    return Choice(name=name, label=name.rpartition(".")[2].capitalize(), options=options)
