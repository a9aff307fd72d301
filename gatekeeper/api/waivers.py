"""Waivers: a named person's dated, expiring exceptions."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from gatekeeper.api.dependencies import ContextOf, Document, RunId, WaiverId
from gatekeeper.api.documents import ROOT, WaiverList
from gatekeeper.api.openapi import WAIVER_BODY, problems
from gatekeeper.services import waivers
from gatekeeper.services.waivers import WaiverView

router = APIRouter(prefix=ROOT, tags=["waivers"], responses=problems(_422="A value is wrong."))
UNKNOWN_RUN = problems(_404="There is no such run.")


@router.post(
    "/runs/{run_id}/waivers",
    status_code=HTTPStatus.CREATED,
    openapi_extra=WAIVER_BODY,
    responses={
        **UNKNOWN_RUN,
        **problems(
            _400="Malformed.",
            _409="The run has no verdict from a policy.",
            _413="Too large.",
            _415="Neither JSON nor YAML.",
        ),
    },
)
def grant_waiver(context: ContextOf, run_id: RunId, document: Document) -> WaiverView:
    """Excuse one metric of a finished run's change until a date. The run is judged again at once.

    Later runs of the same change are judged with it too, until it expires or is revoked.
    """
    return waivers.grant(context.sessions, run_id, document)


@router.get("/runs/{run_id}/waivers", responses=UNKNOWN_RUN)
def list_run_waivers(context: ContextOf, run_id: RunId) -> WaiverList:
    """All waivers that were granted on a run."""
    return WaiverList(items=waivers.list_waivers(context.sessions, run_id=run_id))


@router.get("/waivers")
def list_waivers(
    context: ContextOf, *, ended: bool = False, limit: Annotated[int, Query(ge=1, le=1000)] = 200
) -> WaiverList:
    """The newest waivers in force; with `ended` also those that expired or were revoked."""
    return WaiverList(items=waivers.list_waivers(context.sessions, ended=ended, limit=limit))


@router.post(
    "/waivers/{waiver_id}/revoke",
    responses=problems(_404="There is no such waiver.", _409="It was revoked before."),
)
def revoke_waiver(context: ContextOf, waiver_id: WaiverId) -> WaiverView:
    """End a waiver now. The run on which it was granted is judged again at once."""
    return waivers.revoke(context.sessions, waiver_id)
