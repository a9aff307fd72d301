"""What every route reads from a request."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.services.bodies import read_at_most
from gatekeeper.services.context import Context
from gatekeeper.web.failures import ForeignForm, TokenNeeded
from gatekeeper.web.origin import is_same_origin

MOST_FORM_BYTES: Final = 65_536
MOST_FORM_FIELDS: Final = 100


def context_of(request: Request) -> Context:
    """The application's context."""
    context: Context = request.app.state.context
    return context


def context_for_form(request: Request) -> Context:
    """The context, if this form may change something. Raises ForeignForm or TokenNeeded."""
    context = context_of(request)
    if context.settings.api_token is not None:
        raise TokenNeeded("use the API with `Authorization: Bearer <token>`")
    if not is_same_origin(request.headers):
        raise ForeignForm
    return context


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form that may change something; empty ones are left out. The body is read only once it may.

    Raises ForeignForm, TokenNeeded, BodyTooLarge (having read about MOST_FORM_BYTES at most) and InvalidInput.
    """
    context_for_form(request)
    declared = request.headers.get("content-length", "")
    body = await read_at_most(MOST_FORM_BYTES, request.stream(), declared=declared)
    text = body.decode("utf-8", errors="replace")
    try:
        return dict(parse_qsl(text, max_num_fields=MOST_FORM_FIELDS))
    except ValueError as error:
        allowed = f"at most {MOST_FORM_FIELDS} fields"
        raise InvalidInput(
            [FieldProblem(field="form", problem="too many fields", allowed=allowed)]
        ) from error


Form = Annotated[dict[str, str], Depends(read_form)]
