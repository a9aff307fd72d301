"""A run's events as they happen (server-sent events, WHATWG HTML section 9.2)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Final
from uuid import UUID

import anyio
from fastapi import APIRouter, Header, Response
from fastapi.concurrency import run_in_threadpool
from sse_starlette import EventSourceResponse, ServerSentEvent

from gatekeeper.api.dependencies import ContextOf, RunId
from gatekeeper.api.documents import ROOT
from gatekeeper.api.openapi import problems
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.services.context import Context
from gatekeeper.services.history import events_after
from gatekeeper.services.views import EventBatch

POLL_SECONDS: Final = 0.5
STREAM_SECONDS: Final = 600.0
"""A longer stream is ended; the client comes back with the id of the last event."""

router = APIRouter(prefix=ROOT, tags=["runs"], responses=problems(_422="A value is wrong."))


@router.get(
    "/runs/{run_id}/events",
    response_class=EventSourceResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events `state`, `progress` and others."},
        204: {"description": "The run is over and nothing follows `Last-Event-ID`."},
        **problems(_404="There is no such run."),
    },
)
async def stream_events(
    context: ContextOf, run_id: RunId, last_event_id: Annotated[int | None, Header(ge=0, lt=2**63)] = None
) -> Response:
    """All events of a run so far, then those to come, until it is over."""
    batch = await run_in_threadpool(events_after, context.sessions, run_id, last_event_id or 0)
    if last_event_id is not None and batch.last and not batch.events:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return EventSourceResponse(_follow(context, run_id, batch, last_event_id or 0))


async def _follow(
    context: Context, run_id: UUID, batch: EventBatch, seen: int
) -> AsyncIterator[ServerSentEvent]:
    """Yield events; between looks into the database no thread is held."""
    ends = time.monotonic() + STREAM_SECONDS
    while True:
        for event in batch.events:
            data = {"run_id": str(run_id), "at": event.at.isoformat(), **event.payload}
            yield ServerSentEvent(id=str(event.seq), event=event.kind, data=json.dumps(data))
            seen = event.seq
        if batch.last or time.monotonic() > ends:
            return
        if not batch.events:
            await anyio.sleep(POLL_SECONDS)
        try:
            batch = await run_in_threadpool(events_after, context.sessions, run_id, seen)
        except GatekeeperError:
            return  # the client comes back, and then hears what is wrong
