"""The routes of the form that proposes a change."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from gatekeeper import catalog
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.services import models
from gatekeeper.services.context import Context
from gatekeeper.services.submit import preview, submit
from gatekeeper.web import links, submitting
from gatekeeper.web.failures import PageRoute
from gatekeeper.web.rendering import render
from gatekeeper.web.requests import Form, context_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/submit")
def show_form(request: Request) -> Response:
    """The form; once something is filled in, with what a run of it would be."""
    return _form(context_of(request), dict(request.query_params), problem="")


@router.post("/submit")
def submit_change(request: Request, given: Form) -> Response:
    """Queue a run for the change in the form."""
    context = context_of(request)
    try:
        document = submitting.change_document(submitting.known_fields(given, _fields(context, given)))
        submitted = submit(context.sessions, document, settings=context.settings, ring=context.doorbell.ring)
    except InvalidInput as error:
        return _form(context, given, problem=error.detail or str(error))
    return RedirectResponse(links.run(submitted.run_id), HTTPStatus.SEE_OTHER)


def _fields(context: Context, given: Mapping[str, str]) -> submitting.ChangeForm:
    extra = context.settings.catalog_dir
    return submitting.change_form(
        given,
        models=[model.name for model in models.list_models(context.sessions)],
        suites=catalog.list_names("suites", extra),
        policies=catalog.list_names("policies", extra),
    )


def _form(context: Context, given: Mapping[str, str], *, problem: str) -> Response:
    form, outlook = _fields(context, given), None
    if given and not problem:
        try:
            document = submitting.change_document(submitting.known_fields(given, form))
            outlook = submitting.outlook(preview(context.sessions, document, settings=context.settings))
        except InvalidInput as error:
            problem = error.detail or str(error)
    return render(
        "submit.html",
        status=HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
        form=form,
        problem=problem,
        outlook=outlook,
        needs_token=context.settings.api_token is not None,
    )
