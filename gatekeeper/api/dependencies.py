"""What endpoints ask for: the application's context, ids, a body's document."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Depends, Path, Request
from fastapi.concurrency import run_in_threadpool

from gatekeeper.api.problems import UnsupportedMediaType
from gatekeeper.domain.base import LARGEST
from gatekeeper.domain.documents import parse_document
from gatekeeper.domain.errors import UnreadableInput
from gatekeeper.services.bodies import read_at_most
from gatekeeper.services.context import Context
from gatekeeper.services.ids import row_id_of, run_id_of

MEDIA_TYPES: Final = (
    "application/json",
    "application/yaml",
    "application/x-yaml",
    "text/yaml",
    "text/x-yaml",
)


def get_context(request: Request) -> Context:
    """What the application holds."""
    context: Context = request.app.state.context
    return context


def get_run_id(run_id: Annotated[str, Path(json_schema_extra={"format": "uuid"})]) -> UUID:
    """The run's id; what is no id is the id of no run. Raises NotFound."""
    return run_id_of(run_id)


def get_baseline_id(baseline_id: Annotated[str, Path(json_schema_extra={"format": "int64"})]) -> int:
    """The baseline's id. Raises NotFound."""
    return row_id_of(baseline_id, "baseline")


def get_waiver_id(waiver_id: Annotated[str, Path(json_schema_extra={"format": "int64"})]) -> int:
    """The waiver's id. Raises NotFound."""
    return row_id_of(waiver_id, "waiver")


def get_webhook_id(webhook_id: Annotated[str, Path(json_schema_extra={"format": "int64"})]) -> int:
    """The webhook's id. Raises NotFound."""
    return row_id_of(webhook_id, "webhook")


async def get_document(request: Request) -> dict[str, Any]:
    """The body's mapping. Raises UnsupportedMediaType, BodyTooLarge (having read no more than that), UnreadableInput.

    The type must be stated: a page of another site cannot state these without the browser asking us first.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise UnsupportedMediaType(f"{media_type or 'none'}; send application/json or application/yaml")
    body = await read_at_most(
        get_context(request).settings.max_body_bytes,
        request.stream(),
        declared=request.headers.get("content-length", ""),
    )
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableInput("not UTF-8") from error
    return await run_in_threadpool(parse_document, text)


ContextOf = Annotated[Context, Depends(get_context)]
RunId = Annotated[UUID, Depends(get_run_id)]
Attempt = Annotated[int, Path(ge=1, le=LARGEST)]
BaselineId = Annotated[int, Depends(get_baseline_id)]
WebhookId = Annotated[int, Depends(get_webhook_id)]
WaiverId = Annotated[int, Depends(get_waiver_id)]
Document = Annotated[dict[str, Any], Depends(get_document)]
