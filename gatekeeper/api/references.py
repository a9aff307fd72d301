"""References: configurations that passed and were promoted."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from gatekeeper.api.dependencies import ContextOf, RunId
from gatekeeper.api.documents import ROOT, ReferenceList
from gatekeeper.api.openapi import problems
from gatekeeper.services import promote
from gatekeeper.services.promote import PromotionView

router = APIRouter(prefix=ROOT, tags=["references"])


@router.post(
    "/runs/{run_id}/promote",
    status_code=HTTPStatus.CREATED,
    responses=problems(
        _404="There is no such run.", _409="Its verdict is not PASS, or rests on what expired."
    ),
)
def promote_run(context: ContextOf, run_id: RunId) -> PromotionView:
    """Make the configuration that passed its model's reference; the answer has the engine's flags to roll out."""
    return promote.promote(context.sessions, run_id)


@router.get("/references")
def list_references(context: ContextOf) -> ReferenceList:
    """The reference of every model that has one."""
    return ReferenceList(items=promote.list_references(context.sessions))


@router.get("/references/{model:path}", responses=problems(_404="Nothing of this model was promoted."))
def get_reference(context: ContextOf, model: str) -> PromotionView:
    """The reference of a model."""
    return promote.get_reference(context.sessions, model)
