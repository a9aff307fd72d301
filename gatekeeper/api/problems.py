"""Errors as problem details (RFC 9457). `errors` names each wrong field and what is allowed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

from gatekeeper.domain.documents import field_problem
from gatekeeper.domain.errors import (
    BodyTooLarge,
    Conflict,
    FieldProblem,
    GatekeeperError,
    InvalidInput,
    LeaseLost,
    NotFound,
    ServiceUnavailable,
    UnreadableInput,
)

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"


class UnsupportedMediaType(GatekeeperError):
    """The body's type is not accepted."""


STATUS: Final[Mapping[type[GatekeeperError], HTTPStatus]] = {
    UnreadableInput: HTTPStatus.BAD_REQUEST,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    LeaseLost: HTTPStatus.CONFLICT,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    ServiceUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
HEADERS: Final[Mapping[HTTPStatus, dict[str, str]]] = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: {"Connection": "close"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "5"},
}


class ProblemError(BaseModel):
    """One wrong field: `field` is a dotted path, `allowed` says what would be accepted (or is empty)."""

    field: str
    problem: str
    allowed: str = ""


class Problem(BaseModel):
    """Problem details."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[ProblemError] = []


def problem_response(
    status: HTTPStatus,
    *,
    kind: str,
    title: str,
    detail: str,
    instance: str,
    errors: list[FieldProblem] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Build the answer. `kind` becomes the problem's type URI."""
    problem = Problem(
        type=f"urn:gatekeeper:problem:{kind}",
        title=title,
        status=status,
        detail=detail,
        instance=instance,
        errors=[
            ProblemError(field=error.field, problem=error.problem, allowed=error.allowed)
            for error in errors or []
        ],
    )
    return JSONResponse(
        problem.model_dump(), status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {})
    )


def install(app: FastAPI) -> None:
    """Let every error of `app` end as problem details."""
    app.add_exception_handler(GatekeeperError, _on_gatekeeper_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_unexpected)


async def _on_gatekeeper_error(request: Request, error: Exception) -> Response:
    error = cast("GatekeeperError", error)
    kind = next((kind for kind in type(error).__mro__ if kind in STATUS), None)
    if kind is None:
        return await _on_unexpected(request, error)
    status = STATUS[kind]
    if status >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error)
    title = (kind.__doc__ or "").splitlines()[0].rstrip(".")
    return problem_response(
        status,
        kind=_dashed(kind.__name__),
        title=title,
        detail=error.detail if not isinstance(error, InvalidInput) else str(error),
        instance=request.url.path,
        errors=error.problems if isinstance(error, InvalidInput) else None,
        headers=HEADERS.get(status),
    )


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    invalid = cast("RequestValidationError", error)
    model = _query_model(request)
    problems = [_without_place(cast("ErrorDetails", details), model) for details in invalid.errors()]
    return await _on_gatekeeper_error(request, InvalidInput(problems))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """What the router itself refuses: unknown paths, wrong methods."""
    refusal = cast("HTTPException", error)
    status = HTTPStatus(refusal.status_code)
    if not request.url.path.startswith("/api") and "text/html" in request.headers.get("accept", ""):
        return PlainTextResponse(f"{status} {status.phrase}", status, headers=refusal.headers)
    return problem_response(
        status,
        kind=_dashed(status.phrase.title().replace(" ", "")),
        title=status.phrase,
        detail=str(refusal.detail),
        instance=request.url.path,
        headers=refusal.headers,
    )


async def _on_unexpected(request: Request, _: Exception) -> Response:
    """A bug: the server's log has the trace, the caller gets none."""
    return problem_response(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        kind="internal-error",
        title="Something went wrong here",
        detail="the service's log says what",
        instance=request.url.path,
    )


def _query_model(request: Request) -> type[BaseModel] | None:
    """What a route reads its whole query into, if it does: it knows which keys there are."""
    route = request.scope.get("route")
    found = route.dependant.query_params if isinstance(route, APIRoute) else []
    kinds = (field.field_info.annotation for field in found)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _without_place(details: ErrorDetails, model: type[BaseModel] | None) -> FieldProblem:
    """A field's problem without `query`, `path` or `header` before its name."""
    stripped: dict[str, Any] = {**details, "loc": details["loc"][1:]}
    return field_problem(cast("ErrorDetails", stripped), model)


def _dashed(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")
