"""Is it alive, and can it do its work?"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from gatekeeper.api.dependencies import ContextOf
from gatekeeper.api.openapi import problems
from gatekeeper.api.problems import HEADERS, problem_response
from gatekeeper.domain.errors import FieldProblem, ServiceUnavailable
from gatekeeper.services import metrics
from gatekeeper.storage import database

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def is_alive() -> dict[str, str]:
    """The process answers. Says nothing about what it needs."""
    return {"status": "ok"}


@router.get("/readyz", responses=problems(_503="Something that this needs does not answer."))
def is_ready(request: Request, context: ContextOf) -> Response:
    """Database (migrated) and broker answer."""
    checks: dict[str, Callable[[], None]] = {
        "database": lambda: database.check(context.sessions),
        "broker": context.doorbell.check,
    }
    failures = [failure for name, check in checks.items() if (failure := _failure(name, check))]
    if not failures:
        return JSONResponse({"status": "ready", **dict.fromkeys(checks, "ok")})
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return problem_response(
        status,
        kind="not-ready",
        title="Something that this needs does not answer",
        detail="; ".join(str(failure) for failure in failures),
        instance=request.url.path,
        errors=failures,
        headers=HEADERS[status],
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {}}, "description": "Prometheus metrics."},
        **problems(_503="The database is away."),
    },
)
def get_metrics(request: Request, context: ContextOf) -> Response:
    """The service's own metrics for Prometheus, computed from the database."""
    content, media_type = metrics.exposition(context.sessions, request.headers.get("accept", ""))
    return Response(content, media_type=media_type)


def _failure(name: str, check: Callable[[], None]) -> FieldProblem | None:
    try:
        check()
    except ServiceUnavailable as error:
        return FieldProblem(field=name, problem=error.detail)
    return None
