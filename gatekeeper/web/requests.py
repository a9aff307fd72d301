"""What every route reads from a request."""

from __future__ import annotations

from uuid import UUID

from fastapi import Request

from gatekeeper.domain.errors import NotFound
from gatekeeper.services.context import Context
from gatekeeper.web.failures import ForeignForm, TokenNeeded
from gatekeeper.web.origin import is_same_origin


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


def run_id_of(text: str) -> UUID:
    """A run's id in an address. Raises NotFound."""
    try:
        return UUID(text)
    except ValueError as error:
        raise NotFound(f"run {text!r}") from error
