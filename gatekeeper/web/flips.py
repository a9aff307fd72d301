"""The view model of the flip browser: items whose outcome changed, and documents at which greedy choices part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args
from urllib.parse import urlencode
from uuid import UUID

from pydantic import ValidationError

from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.parting import Parting
from gatekeeper.services.items import ItemFilters, ItemView, PartingFilters
from gatekeeper.storage.items import Flip
from gatekeeper.web import figures, links
from gatekeeper.web.answers import AnswersPanel, answers_panel
from gatekeeper.web.badges import Badge
from gatekeeper.web.filters import Choice, Option

CONTEXT: Final = ("context_from", "context_to")
FIELDS: Final = ("suite", "task", "mode", "flip", *CONTEXT)
BINARY: Final = tuple(metric.source for metric in METRICS.values() if metric.kind == "binary")
PROBABILITIES: Final = {"correct": "right_choice_probability", "retrieved": "answer_probability"}
"""A figure that is right or wrong -> the continuous one of the same item."""
OUTCOMES: Final[Mapping[bool, Badge]] = {
    True: Badge(word="right", symbol="check", tone="pass"),
    False: Badge(word="wrong", symbol="cross", tone="fail"),
}
PAGE_SIZE: Final = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class FlipLine:
    """One item whose outcome changed. `probability`: of the right answer, baseline and candidate, where known.

    `answers` None: the arms were measured before answers were kept.
    """

    item: str
    task: str
    suite: str
    mode: str
    context: str
    baseline: Badge
    candidate: Badge
    probability: tuple[str, str] | None
    answers: AnswersPanel | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PartingLine:
    """One document: where the greedy choices of the arms part for the first time."""

    item: str
    mode: str
    first: str
    differing: str
    mean_kl: str
    worst: str
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FlipForm:
    """The drop-down lists above the items, and the tokens of context between which they were asked."""

    choices: tuple[Choice, ...]
    context_from: str
    context_to: str
    is_active: bool


def read_filters(query: Mapping[str, str]) -> ItemFilters:
    """The filters in an address; without `flip`, both ways. Raises InvalidInput naming the field."""
    given = {name: query[name].strip() for name in (*FIELDS, "cursor") if query.get(name, "").strip()}
    try:
        fixed = {"limit": PAGE_SIZE, "include": "answers"}
        return ItemFilters.model_validate({"flip": "any"} | given | fixed)
    except ValidationError as error:
        raise InvalidInput(field_problems(error)) from error


def flip_form(query: Mapping[str, str], known: Sequence[ItemView]) -> FlipForm:
    """The form for an address; it offers what the run's items have."""
    offered: dict[str, list[str]] = {
        "suite": sorted({item.suite for item in known}),
        "task": sorted({item.task for item in known}),
        "mode": sorted({item.mode for item in known}),
        "flip": [way for way in get_args(Flip) if way != "any"],
    }
    chosen = {name: query.get(name, "").strip() for name in FIELDS}
    choices = []
    for name, values in offered.items():
        listed = [*values, *([chosen[name]] if chosen[name] and chosen[name] not in values else [])]
        options = tuple(Option(value=value, is_chosen=value == chosen[name]) for value in listed)
        choices.append(
            Choice(name=name, label={"flip": "Change"}.get(name, name.capitalize()), options=options)
        )
    start, end = (chosen[name] for name in CONTEXT)
    return FlipForm(
        choices=tuple(choices), context_from=start, context_to=end, is_active=any(chosen.values())
    )


def address(run_id: UUID, query: Mapping[str, str], *, cursor: str | None = None) -> str:
    """The same filters from `cursor` on."""
    kept = {name: query[name] for name in FIELDS if query.get(name, "").strip()}
    words = urlencode(kept | ({"cursor": cursor} if cursor else {}))
    return f"{links.flips(run_id)}?{words}" if words else links.flips(run_id)


def api_addresses(run_id: UUID, filters: ItemFilters) -> tuple[str, str]:
    """What the page shows as JSON: its items, and its documents."""
    words = filters.model_dump(exclude_none=True)
    return (
        links.api_items(run_id, words),
        links.api_partings(
            run_id, {name: words[name] for name in PartingFilters.model_fields if name in words}
        ),
    )


def flip_lines(flipped: Sequence[ItemView], probabilities: Sequence[ItemView]) -> tuple[FlipLine, ...]:
    """The rows of a page of items that flipped."""
    known = {(entry.suite, entry.mode, entry.item_id, entry.metric): entry for entry in probabilities}
    lines = []
    for entry in flipped:
        key = entry.suite, entry.mode, entry.item_id, PROBABILITIES.get(entry.metric, "")
        beside = known.get(key)
        lines.append(
            FlipLine(
                item=entry.item_id,
                task=entry.task,
                suite=entry.suite,
                mode=entry.mode,
                context=f"{entry.context_tokens:,} tokens" if entry.context_tokens else "",
                baseline=OUTCOMES[bool(entry.baseline)],
                candidate=OUTCOMES[bool(entry.candidate)],
                probability=(_share(beside.baseline), _share(beside.candidate)) if beside else None,
                answers=answers_panel(entry.answers) if entry.answers else None,
            )
        )
    return tuple(lines)


def parting_lines(run_id: UUID, partings: Sequence[Parting]) -> tuple[PartingLine, ...]:
    """The documents, those that part earliest first; documents that agree everywhere come last."""
    ordered = sorted(partings, key=lambda p: (p.first is None, p.first or 0, p.mode, p.item_id))
    return tuple(
        PartingLine(
            item=parting.item_id,
            mode=parting.mode,
            first="nowhere" if parting.first is None else f"token {parting.first + 1} of {parting.tokens}",
            differing=f"{parting.differing} ({100 * parting.differing / parting.tokens:.0f}%)",
            mean_kl=figures.number("decode_kl", parting.mean_kl),
            worst=f"{figures.number('decode_kl', parting.worst_kl)} at token {parting.worst + 1}",
            url=links.tokens(run_id, mode=parting.mode, item_id=parting.item_id),
        )
        for parting in ordered
    )


def _share(value: float | None) -> str:
    return figures.NOT_MEASURED if value is None else f"{100 * value:.1f}%"
