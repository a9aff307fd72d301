"""The routes of the form that proposes a change."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from gatekeeper import catalog
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.vllm_flags import FORBIDDEN_ARGUMENTS
from gatekeeper.services import models
from gatekeeper.services.context import Context
from gatekeeper.services.submit import preview, submit
from gatekeeper.web import links, planned, submitting
from gatekeeper.web.failures import PageRoute
from gatekeeper.web.rendering import render
from gatekeeper.web.requests import Form, context_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/submit")
def show_form(request: Request) -> Response:
    """The form; once something is filled in, with what a run of it would be."""
    return _form(context_of(request), dict(request.query_params), None)


@router.post("/submit")
def submit_change(request: Request, given: Form) -> Response:
    """Queue a run for the change in the form."""
    context = context_of(request)
    try:
        document = submitting.change_document(submitting.known_fields(given, _fields(context, given)))
        submitted = submit(context.sessions, document, settings=context.settings, ring=context.doorbell.ring)
    except InvalidInput as error:
        return _form(context, given, error)
    return RedirectResponse(links.run(submitted.run_id), HTTPStatus.SEE_OTHER)


def _fields(context: Context, given: Mapping[str, str]) -> submitting.ChangeForm:
    settings = context.settings
    return submitting.change_form(
        given,
        models=[model.name for model in models.list_models(context.sessions)],
        suites=catalog.list_names("suites", settings.catalog_dir),
        policies=catalog.list_names("policies", settings.catalog_dir),
        arguments=settings.allowed_engine_args - FORBIDDEN_ARGUMENTS,
    )


def _form(context: Context, given: Mapping[str, str], refusal: InvalidInput | None) -> Response:
    form, outlook = _fields(context, given), None
    if given and refusal is None:
        try:
            document = submitting.change_document(submitting.known_fields(given, form))
            outlook = planned.outlook(preview(context.sessions, document, settings=context.settings))
        except InvalidInput as error:
            refusal = error
    return render(
        "submit.html",
        status=HTTPStatus.BAD_REQUEST if refusal else HTTPStatus.OK,
        form=form,
        problems=submitting.problems(refusal.problems, form) if refusal else (),
        outlook=outlook,
        needs_token=context.settings.api_token is not None,
    )
