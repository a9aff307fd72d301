"""What was measured item by item."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gatekeeper.api.dependencies import ContextOf, RunId
from gatekeeper.api.documents import ROOT
from gatekeeper.api.openapi import problems
from gatekeeper.domain.parting import Parting
from gatekeeper.services import items
from gatekeeper.services.items import ItemFilters, ItemView, PartingFilters, TokenFilters
from gatekeeper.services.views import Page, View

router = APIRouter(
    prefix=ROOT,
    tags=["runs"],
    responses=problems(_404="There is no such run.", _422="A value is wrong.", _503="The database is away."),
)


class Distribution(View):
    """One arm's most probable tokens at one place, best first, with their log-probabilities (nats)."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]


class TokenPlace(View):
    """One scored place: the token that both arms were given, and what each would have written."""

    place: int
    token_id: int
    baseline: Distribution
    candidate: Distribution


class PartingList(View):
    """The documents that both arms scored."""

    items: tuple[Parting, ...]


class TokenDocument(View):
    """One document's tokens around the place at which the arms part."""

    parting: Parting
    places: tuple[TokenPlace, ...]


@router.get("/runs/{run_id}/items")
def list_items(context: ContextOf, run_id: RunId, filters: Annotated[ItemFilters, Query()]) -> Page[ItemView]:
    """Both arms' figures of every item; with `flip`, of those whose outcome changed.

    With `include=answers` also what was asked and what both arms said.
    """
    return items.list_items(context.sessions, run_id, filters)


@router.get("/runs/{run_id}/partings")
def list_partings(
    context: ContextOf, run_id: RunId, filters: Annotated[PartingFilters, Query()]
) -> PartingList:
    """Where the arms' greedy choices part, document by document."""
    return PartingList(items=items.list_partings(context.sessions, run_id, filters))


@router.get("/runs/{run_id}/tokens")
def get_tokens(context: ContextOf, run_id: RunId, filters: Annotated[TokenFilters, Query()]) -> TokenDocument:
    """Both arms' distributions over one document's tokens, from just before the first parting on."""
    baseline, candidate, parting = items.get_tokens(
        context.sessions, run_id, mode=filters.mode, item_id=filters.item_id
    )
    start = max((parting.first or 0) - 4, 0)
    stop = min(start + filters.tokens, parting.tokens)
    return TokenDocument(
        parting=parting,
        places=tuple(
            TokenPlace(
                place=place,
                token_id=candidate.token_ids[place],
                baseline=Distribution(
                    token_ids=tuple(baseline.top_ids[place]), logprobs=tuple(baseline.top_logprobs[place])
                ),
                candidate=Distribution(
                    token_ids=tuple(candidate.top_ids[place]), logprobs=tuple(candidate.top_logprobs[place])
                ),
            )
            for place in range(start, stop)
        ),
    )
