"""The routes of the flip browser."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from gatekeeper.domain.errors import InvalidInput
from gatekeeper.services import history, items
from gatekeeper.services.ids import run_id_of
from gatekeeper.services.items import ItemView
from gatekeeper.services.views import Page
from gatekeeper.services.vocabulary import token_texts
from gatekeeper.web import flips, links
from gatekeeper.web.failures import PageRoute
from gatekeeper.web.rendering import render
from gatekeeper.web.requests import context_of
from gatekeeper.web.token_page import token_page

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/runs/{run_id}/items")
def list_flips(request: Request, run_id: str) -> Response:
    """The items whose outcome changed, and the documents at which greedy choices part."""
    sessions, known, query = context_of(request).sessions, run_id_of(run_id), dict(request.query_params)
    run = history.get_run(sessions, known)
    page, problem, filters = Page[ItemView](items=(), next_cursor=None), "", flips.read_filters({})
    try:
        filters = flips.read_filters(query)
        page = items.list_items(sessions, known, filters)
    except InvalidInput as error:
        problem = error.detail or str(error)
    names = [item.item_id for item in page.items]
    beside = items.figures_of(sessions, known, tuple(flips.PROBABILITIES.values()), only_items=names)
    api_url, partings_url = flips.api_addresses(known, filters)
    return render(
        "items.html",
        status=HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
        name=run.name,
        run_url=links.run(known),
        flips_url=links.flips(known),
        api_url=api_url,
        partings_url=partings_url,
        form=flips.flip_form(query, items.figures_of(sessions, known, flips.BINARY)),
        problem=problem,
        lines=flips.flip_lines(page.items, beside),
        partings=flips.parting_lines(known, items.list_partings(sessions, known, filters)),
        next_url=flips.address(known, query, cursor=page.next_cursor) if page.next_cursor else None,
        first_url=flips.address(known, query) if query.get("cursor") else None,
    )


@router.get("/runs/{run_id}/tokens")
def show_tokens(
    request: Request, run_id: str, item: str = "", mode: str = "cold", place: str = ""
) -> Response:
    """One document's tokens around one place, counted from 1; without one, around the first parting."""
    sessions, known = context_of(request).sessions, run_id_of(run_id)
    run = history.get_run(sessions, known)
    measured = items.get_tokens(sessions, known, mode=mode, item_id=item)
    texts = token_texts(run.plan["candidate"]["model"]["source"])
    wanted = int(place) - 1 if place.isascii() and place.isdigit() and len(place) < 10 else None
    page = token_page(known, measured, texts, place=wanted)
    return render("tokens.html", page=page, name=run.name, run_url=links.run(known))
