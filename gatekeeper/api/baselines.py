"""Baselines: list, pin, unpin, refresh."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gatekeeper.api.dependencies import BaselineId, ContextOf
from gatekeeper.api.documents import ROOT, BaselineList
from gatekeeper.api.openapi import problems
from gatekeeper.services import baselines
from gatekeeper.services.baselines import BaselineView

router = APIRouter(
    prefix=f"{ROOT}/baselines", tags=["baselines"], responses=problems(_422="A value is wrong.")
)
REFUSED = problems(_404="There is no such baseline.", _409="The baseline is retired.")


@router.get("")
def list_baselines(
    context: ContextOf,
    *,
    retired: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> BaselineList:
    """The baselines in use; with `retired` also those that were."""
    return BaselineList(items=baselines.list_baselines(context.sessions, retired=retired, limit=limit))


@router.post("/{baseline_id}/pin", responses=REFUSED)
def pin_baseline(context: ContextOf, baseline_id: BaselineId) -> BaselineView:
    """Keep a baseline in use however old it gets."""
    return baselines.pin(context.sessions, baseline_id)


@router.post("/{baseline_id}/unpin", responses=REFUSED)
def unpin_baseline(context: ContextOf, baseline_id: BaselineId) -> BaselineView:
    """Let a baseline grow old again."""
    return baselines.unpin(context.sessions, baseline_id)


@router.post("/{baseline_id}/refresh", responses=REFUSED)
def refresh_baseline(context: ContextOf, baseline_id: BaselineId) -> BaselineView:
    """Retire a baseline: the next run of its fingerprint measures a new one."""
    return baselines.refresh(context.sessions, baseline_id)
