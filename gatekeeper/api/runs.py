"""Runs: submit, read, list, cancel, retry; their deltas and artifacts."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import PlainTextResponse

from gatekeeper.api.dependencies import Attempt, ContextOf, Document, RunId
from gatekeeper.api.documents import (
    ROOT,
    ArtifactList,
    PlanDocument,
    RunDocument,
    RunListItem,
    SubmittedDocument,
    artifact_document,
    plan_document,
    run_document,
    run_item,
    submitted_document,
)
from gatekeeper.api.openapi import CHANGE_BODY, REJUDGE_BODY, problems
from gatekeeper.services import history
from gatekeeper.services.cancel import cancel
from gatekeeper.services.history import DeltaFilters, RunFilters
from gatekeeper.services.rejudge import rejudge
from gatekeeper.services.retry import retry
from gatekeeper.services.submit import preview, submit
from gatekeeper.services.views import DeltaView, Page

router = APIRouter(
    prefix=ROOT, tags=["runs"], responses=problems(_422="A value is wrong.", _503="The database is away.")
)

IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")
]
REFUSED_BODY = problems(_400="Malformed.", _413="Too large.", _415="Neither JSON nor YAML.")
UNKNOWN = problems(_404="There is no such run.")


@router.post(
    "/runs",
    status_code=HTTPStatus.ACCEPTED,
    openapi_extra=CHANGE_BODY,
    responses={**REFUSED_BODY, **problems(_409="The idempotency key belongs to another change.")},
)
def submit_run(
    context: ContextOf, document: Document, response: Response, idempotency_key: IdempotencyKey = None
) -> SubmittedDocument:
    """Propose a change. It is queued; `Location` is where its verdict will be.

    A request with the `Idempotency-Key` of an earlier one gets that one's run.
    """
    submitted = submit(
        context.sessions,
        document,
        settings=context.settings,
        ring=context.doorbell.ring,
        idempotency_key=idempotency_key,
    )
    response.headers["Location"] = f"{ROOT}/runs/{submitted.run_id}"
    return submitted_document(history.get_run(context.sessions, submitted.run_id), submitted)


@router.post("/plan", openapi_extra=CHANGE_BODY, responses=REFUSED_BODY)
def plan_run(context: ContextOf, document: Document) -> PlanDocument:
    """Say what a run of a change would do. Stores and starts nothing."""
    return plan_document(preview(context.sessions, document, settings=context.settings))


@router.get("/runs")
def list_runs(context: ContextOf, filters: Annotated[RunFilters, Query()]) -> Page[RunListItem]:
    """The newest runs first."""
    page = history.list_runs(context.sessions, filters)
    return Page[RunListItem](items=tuple(run_item(run) for run in page.items), next_cursor=page.next_cursor)


@router.get("/runs/{run_id}", responses=UNKNOWN)
def get_run(context: ContextOf, run_id: RunId) -> RunDocument:
    """One run: its state, and once it has finished its verdict with the evidence."""
    return run_document(history.get_run(context.sessions, run_id))


@router.post(
    "/runs/{run_id}/cancel",
    status_code=HTTPStatus.ACCEPTED,
    responses={**UNKNOWN, **problems(_409="The run has finished.")},
)
def cancel_run(context: ContextOf, run_id: RunId) -> RunDocument:
    """Cancel a run: at once if it waits, at its worker's next heartbeat if it runs."""
    cancel(context.sessions, run_id)
    return run_document(history.get_run(context.sessions, run_id))


@router.post(
    "/runs/{run_id}/retry",
    status_code=HTTPStatus.ACCEPTED,
    responses={**UNKNOWN, **problems(_409="The run is neither cancelled nor an ERROR.")},
)
def retry_run(context: ContextOf, run_id: RunId) -> RunDocument:
    """Queue a run again that was cancelled or came to ERROR."""
    retry(context.sessions, run_id, ring=context.doorbell.ring)
    return run_document(history.get_run(context.sessions, run_id))


@router.post(
    "/runs/{run_id}/rejudge",
    openapi_extra=REJUDGE_BODY,
    responses={**REFUSED_BODY, **UNKNOWN, **problems(_409="The run has no verdict from a policy.")},
)
def rejudge_run(context: ContextOf, run_id: RunId, document: Document) -> RunDocument:
    """The run as another policy would have judged it, from what was measured. Stores and starts nothing."""
    return run_document(rejudge(context.sessions, run_id, document, settings=context.settings))


@router.get("/runs/{run_id}/deltas", responses=UNKNOWN)
def list_run_deltas(
    context: ContextOf, run_id: RunId, filters: Annotated[DeltaFilters, Query()]
) -> Page[DeltaView]:
    """The deltas of one run."""
    return history.list_deltas(context.sessions, filters, run_id=run_id)


@router.get("/deltas")
def list_deltas(context: ContextOf, filters: Annotated[DeltaFilters, Query()]) -> Page[DeltaView]:
    """Deltas across runs, newest first."""
    return history.list_deltas(context.sessions, filters)


@router.get("/runs/{run_id}/artifacts", responses=UNKNOWN)
def list_artifacts(context: ContextOf, run_id: RunId) -> ArtifactList:
    """Logs and other texts of all attempts of a run."""
    found = history.list_artifacts(context.sessions, run_id)
    return ArtifactList(items=[artifact_document(artifact) for artifact in found])


@router.get(
    "/runs/{run_id}/artifacts/{attempt}/{role}/{name:path}",
    response_class=PlainTextResponse,
    responses=problems(_404="There is no such artifact."),
)
def get_artifact(
    context: ContextOf, run_id: RunId, attempt: Attempt, role: str, name: str
) -> PlainTextResponse:
    """The text of an artifact."""
    text = history.get_artifact(context.sessions, run_id, attempt=attempt, role=role, name=name)
    return PlainTextResponse(text)
