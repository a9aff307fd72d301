"""Errors of the services as pages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute

from gatekeeper.domain.errors import (
    BodyTooLarge,
    Conflict,
    GatekeeperError,
    InvalidInput,
    NotFound,
    ServiceUnavailable,
)
from gatekeeper.web.rendering import render_error


class ForeignForm(GatekeeperError):
    """The form was not sent from a page of this service."""


class TokenNeeded(GatekeeperError):
    """This service changes something only for those who know its token."""


FAILURES: Final[Mapping[type[GatekeeperError], tuple[HTTPStatus, str]]] = {
    NotFound: (HTTPStatus.NOT_FOUND, "There is nothing here"),
    Conflict: (HTTPStatus.CONFLICT, "That can't be done now"),
    InvalidInput: (HTTPStatus.BAD_REQUEST, "That can't be understood"),
    BodyTooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That is too much"),
    ForeignForm: (HTTPStatus.FORBIDDEN, "Not allowed"),
    TokenNeeded: (HTTPStatus.FORBIDDEN, "Not allowed"),
    ServiceUnavailable: (HTTPStatus.SERVICE_UNAVAILABLE, "The database does not answer"),
}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose expected errors end as pages instead of problem documents."""

    def get_route_handler(self) -> Handler:
        """Wrap the handler."""
        handle = super().get_route_handler()

        async def handle_or_explain(request: Request) -> Response:
            try:
                return await handle(request)
            except tuple(FAILURES) as error:
                return failure_page(error)

        return handle_or_explain


def failure_page(error: GatekeeperError) -> Response:
    """The page for an error."""
    status, title = next(FAILURES[kind] for kind in type(error).__mro__ if kind in FAILURES)
    page = render_error(status, title=title, detail=str(error))
    if isinstance(error, BodyTooLarge):
        page.headers["Connection"] = "close"  # the rest of the body is not read
    return page
