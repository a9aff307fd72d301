"""The routes of the pages."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final
from uuid import UUID

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import RedirectResponse
from starlette.convertors import Convertor, register_url_convertor

from gatekeeper.domain.errors import InvalidInput, NotFound
from gatekeeper.services import history, items, models, waivers
from gatekeeper.services.cancel import cancel
from gatekeeper.services.history import RunTable
from gatekeeper.services.ids import row_id_of, run_id_of
from gatekeeper.services.retry import retry
from gatekeeper.services.views import EventView, Page, RunSummary
from gatekeeper.storage.database import Sessions
from gatekeeper.web import filters, item_pages, links, standing_pages, submit_page
from gatekeeper.web.assets import ASSETS
from gatekeeper.web.failures import PageRoute
from gatekeeper.web.rendering import render, render_error
from gatekeeper.web.requests import Form, context_for_form, context_of
from gatekeeper.web.run_list import OPEN_STATES, run_lines
from gatekeeper.web.run_page import ITEM_METRICS, RunMaterial, run_page

MAX_EVENTS: Final = 5_000
NOTHING: Final = RunTable(page=Page[RunSummary](items=(), next_cursor=None), headlines={}, trends={})
FOR_GOOD: Final = "public, max-age=31536000, immutable"


class _PageConvertor(Convertor[str]):
    """Any path that is not the API's."""

    regex = r"(?!api/|healthz|readyz|metrics|openapi\.json).*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("page", _PageConvertor())
router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/")
def home() -> Response:
    """The runs are the home page."""
    return RedirectResponse(links.RUNS, HTTPStatus.TEMPORARY_REDIRECT)


@router.get("/runs")
def list_runs(request: Request) -> Response:
    """The newest runs that meet the filters in the address."""
    sessions, query = context_of(request).sessions, dict(request.query_params)
    table, problem = NOTHING, ""
    try:
        table = history.list_runs_with_figures(sessions, filters.read_filters(query))
    except InvalidInput as error:
        problem = error.detail or str(error)
    page = table.page
    return render(
        "runs.html",
        status=HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
        runs=run_lines(page.items, table.headlines, table.trends, now=datetime.now(UTC)),
        form=filters.filter_form(query, models=[model.name for model in models.list_models(sessions)]),
        problem=problem,
        is_live=any(run.state in OPEN_STATES for run in page.items),
        older_url=filters.address(query, cursor=page.next_cursor) if page.next_cursor else None,
        newest_url=filters.address(query) if query.get("cursor") else None,
    )


@router.get("/runs/{run_id}")
def show_run(request: Request, run_id: str) -> Response:
    """One run, with everything that its verdict rests on."""
    context, known = context_of(request), run_id_of(run_id)
    material = RunMaterial(
        run=history.get_run(context.sessions, known),
        events=_events(context.sessions, known),
        artifacts=history.list_artifacts(context.sessions, known),
        items=items.figures_of(context.sessions, known, ITEM_METRICS),
        waivers=waivers.list_waivers(context.sessions, run_id=known),
    )
    page = run_page(
        material,
        now=datetime.now(UTC),
        base_url=str(request.base_url),
        needs_token=context.settings.api_token is not None,
    )
    return render("run.html", page=page)


@router.post("/runs/{run_id}/cancel")
def cancel_run(request: Request, run_id: str) -> Response:
    """The button on a run's page."""
    context, known = context_for_form(request), run_id_of(run_id)
    cancel(context.sessions, known)
    return RedirectResponse(links.run(known), HTTPStatus.SEE_OTHER)


@router.post("/runs/{run_id}/retry")
def retry_run(request: Request, run_id: str) -> Response:
    """The button on a run's page."""
    context, known = context_for_form(request), run_id_of(run_id)
    retry(context.sessions, known, ring=context.doorbell.ring)
    return RedirectResponse(links.run(known), HTTPStatus.SEE_OTHER)


@router.post("/runs/{run_id}/waive")
def waive_metric(request: Request, run_id: str, given: Form) -> Response:
    """The form on a run's page."""
    context, known = context_of(request), run_id_of(run_id)
    document = {field: given.get(field, "") for field in ("metric", "owner", "reason", "expires_at")}
    waivers.grant(context.sessions, known, document)
    return RedirectResponse(links.run(known), HTTPStatus.SEE_OTHER)


@router.post("/runs/{run_id}/waivers/{waiver_id}/revoke")
def revoke_waiver(request: Request, run_id: str, waiver_id: str) -> Response:
    """The button beside a waiver."""
    context, known = context_for_form(request), run_id_of(run_id)
    waivers.revoke(context.sessions, row_id_of(waiver_id, "waiver"))
    return RedirectResponse(links.run(known), HTTPStatus.SEE_OTHER)


@router.get("/static/{name}")
def static_file(name: str) -> Response:
    """A style sheet, a script, a drawing."""
    if name not in ASSETS:
        raise NotFound(f"file {name!r}")
    asset = ASSETS[name]
    headers = {"Cache-Control": FOR_GOOD, "X-Content-Type-Options": "nosniff"}
    return Response(asset.content, media_type=asset.media_type, headers=headers)


router.include_router(item_pages.router)
router.include_router(standing_pages.router)
router.include_router(submit_page.router)


@router.get("/{path:page}")
def unknown_page(request: Request, path: str) -> Response:
    """Every other address, for browsers; other clients get the application's own answer."""
    if "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return render_error(
        HTTPStatus.NOT_FOUND, title="There is nothing here", detail=f"No page is called /{path}."
    )


def _events(sessions: Sessions, run_id: UUID) -> list[EventView]:
    """The events of a run so far; after MAX_EVENTS the timeline is cut short."""
    found: list[EventView] = []
    while len(found) < MAX_EVENTS:
        batch = history.events_after(sessions, run_id, found[-1].seq if found else 0)
        found += batch.events
        if len(batch.events) < history.EVENTS_AT_ONCE:
            break
    return found
