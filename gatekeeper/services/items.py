"""Read what was measured item by item: both arms side by side, and the tokens at which they part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import Field, ValidationInfo, field_validator
from sqlalchemy.orm import Session

from gatekeeper.domain.answer import Answer, Chances, first_difference
from gatekeeper.domain.base import LARGEST, Closed
from gatekeeper.domain.errors import NotFound
from gatekeeper.domain.measurement import Mode, TokenTrace
from gatekeeper.domain.parting import Parting, part_of
from gatekeeper.services import cursor
from gatekeeper.services.history import Limit, Words
from gatekeeper.services.views import Page, View
from gatekeeper.storage import arms, items, runs
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.items import Flip

Tokens = Annotated[int, Field(ge=0, le=LARGEST)]
MOST_FIGURES: Final = 20_000
"""A page shows no more figures of one run than this."""


class SaidView(View):
    """What an arm said, in pieces: tokens where they are known, else words.

    `chances` by piece: what it held for the next token there, each with its probability; empty for words.
    """

    pieces: tuple[str, ...]
    options: Chances
    chances: tuple[Chances, ...]


class AnswersView(View):
    """What was asked, and both arms' answers. `differ_at`: the first piece that differs, counted from 0."""

    prompt: str
    expected: str | None
    baseline: SaidView
    candidate: SaidView
    differ_at: int | None


class ItemView(View):
    """One figure of one item under the baseline and under the candidate; null where that arm has no value.

    `answers`: null unless they are included, and for arms that were measured before answers were kept.
    """

    suite: str
    mode: Mode
    item_id: str
    metric: str
    task: str
    context_tokens: int | None
    baseline: float | None
    candidate: float | None
    reason: str | None
    answers: AnswersView | None = None


class PartingFilters(Closed):
    """Which documents. `context_from`, `context_to`: those of so many tokens of context, from the first on and below
    the second.
    """

    mode: Mode | None = None
    context_from: Tokens | None = None
    context_to: Tokens | None = None

    @field_validator("context_to")
    @classmethod
    def _holds_a_length(cls, end: int | None, others: ValidationInfo) -> int | None:
        start = others.data.get("context_from") or 0
        if end is not None and end <= start:
            raise ValueError(f"{end} tokens end before they begin; allowed: more than context_from, {start}")
        return end

    def admits(self, parting: Parting) -> bool:
        """Whether a document is of the mode and the context asked for; one of unknown context meets no bounds."""
        start, end, length = self.context_from, self.context_to, parting.context_tokens
        is_within = start is end is None or (
            length is not None and (start is None or length >= start) and (end is None or length < end)
        )
        return is_within and self.mode in (None, parting.mode)


class ItemFilters(PartingFilters):
    """Which figures. `flip`: those that changed between zero and more: `lost`, `gained`, or `any` of the two.

    `context_from`, `context_to`: those of so many tokens of context, from the first on and below the second.
    `include`: `answers` adds the question and what both arms said.
    """

    suite: Words | None = None
    task: Words | None = None
    metric: Words | None = None
    flip: Flip | None = None
    include: Literal["answers"] | None = None
    limit: Limit = 100
    cursor: Words | None = None


class TokenFilters(Closed):
    """Which document. `tokens`: at most so many places, from just before the first parting on."""

    mode: Mode = "cold"
    item_id: Words
    tokens: Annotated[int, Field(ge=1, le=512)] = 32


def list_items(sessions: Sessions, run_id: UUID, filters: ItemFilters) -> Page[ItemView]:
    """The items of a run's present attempt. Raises NotFound, and InvalidInput for a wrong cursor."""
    after = cursor.decode_item(filters.cursor) if filters.cursor else None
    conditions = filters.model_dump(exclude={"limit", "cursor", "include"}, exclude_none=True)
    with transaction(sessions) as session:
        pair = _arm_pair(session, run_id)
        found = (
            items.list_pairs(session, pair, conditions, after=after, limit=filters.limit + 1) if pair else []
        )
        page = [_item(entry) for entry in found[: filters.limit]]
        if pair and filters.include == "answers":
            page = _with_answers(session, pair, page)
    more = len(found) > filters.limit
    last = [getattr(page[-1], name) for name in items.KEY] if more else []
    return Page(items=tuple(page), next_cursor=cursor.encode_item(last) if more else None)


def figures_of(
    sessions: Sessions, run_id: UUID, metrics: Sequence[str], *, only_items: Sequence[str] | None = None
) -> tuple[ItemView, ...]:
    """All figures of these kinds, of these items or of all; at most MOST_FIGURES. Raises NotFound."""
    conditions: dict[str, object] = {"metrics": list(metrics)}
    if only_items is not None:
        conditions["items"] = list(only_items)
    with transaction(sessions) as session:
        pair = _arm_pair(session, run_id)
        found = items.list_pairs(session, pair, conditions, limit=MOST_FIGURES) if pair else []
    return tuple(_item(entry) for entry in found)


def list_partings(sessions: Sessions, run_id: UUID, filters: PartingFilters) -> tuple[Parting, ...]:
    """Where the greedy choices of the arms part, for every document that both scored. Raises NotFound."""
    with transaction(sessions) as session:
        pair = _arm_pair(session, run_id)
        traces = items.list_traces(session, pair) if pair else {}
    if pair is None:
        return ()
    references = _references(traces[pair[0]])
    found = (
        part_of(_reference(references, trace), trace) for trace in traces[pair[1]] if trace.mode != "greedy"
    )
    return tuple(parting for parting in found if parting is not None and filters.admits(parting))


def get_tokens(
    sessions: Sessions, run_id: UUID, *, mode: str, item_id: str
) -> tuple[TokenTrace, TokenTrace, Parting]:
    """Both arms' scored tokens of one document, and where they part. Raises NotFound."""
    with transaction(sessions) as session:
        pair = _arm_pair(session, run_id)
        traces = items.list_traces(session, pair, item_id=item_id) if pair else {}
    if pair is not None:
        candidate = next((trace for trace in traces[pair[1]] if trace.mode == mode), None)
        baseline = _reference(_references(traces[pair[0]]), candidate) if candidate else None
        parting = part_of(baseline, candidate) if candidate else None
        if baseline is not None and candidate is not None and parting is not None:
            return baseline, candidate, parting
    raise NotFound(f"scored tokens of {item_id!r} in mode {mode!r}")


def _arm_pair(session: Session, run_id: UUID) -> tuple[int, int] | None:
    """Baseline and candidate of the present attempt; None before both were launched."""
    ids = arms.list_roles(session, run_id, runs.get_head(session, run_id).attempt)
    return (ids["baseline"], ids["candidate"]) if {"baseline", "candidate"} <= ids.keys() else None


def _with_answers(session: Session, pair: tuple[int, int], page: Sequence[ItemView]) -> list[ItemView]:
    """The same with what both arms said, where both did."""
    places = [(item.suite, item.mode, item.item_id) for item in page]
    said = items.list_answers(session, pair, places)
    answered = []
    for item, place in zip(page, places, strict=True):
        baseline, candidate = (said.get((arm_id, *place)) for arm_id in pair)
        answers = _answers(baseline, candidate) if baseline and candidate else None
        answered.append(item.model_copy(update={"answers": answers}))
    return answered


def _answers(baseline: Answer, candidate: Answer) -> AnswersView:
    return AnswersView(
        prompt=candidate.prompt,
        expected=candidate.expected,
        baseline=_said(baseline),
        candidate=_said(candidate),
        differ_at=first_difference(baseline, candidate),
    )


def _said(answer: Answer) -> SaidView:
    return SaidView(pieces=tuple(answer.pieces), options=answer.options, chances=answer.places)


def _references(traces: Sequence[TokenTrace]) -> dict[tuple[str, str], TokenTrace]:
    return {(trace.mode, trace.item_id): trace for trace in traces}


def _reference(known: dict[tuple[str, str], TokenTrace], trace: TokenTrace) -> TokenTrace | None:
    """The baseline's tokens of the same mode, else cold: what judging compares with."""
    return known.get((trace.mode, trace.item_id)) or known.get(("cold", trace.item_id))


def _item(pair: items.ItemPair) -> ItemView:
    return ItemView(**{name: getattr(pair, name) for name in ItemView.model_fields if name != "answers"})
