"""Runs side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gatekeeper.api.dependencies import ContextOf
from gatekeeper.api.documents import ROOT
from gatekeeper.api.openapi import problems
from gatekeeper.services.comparison import MOST_RUNS, ComparisonView, compare_runs

router = APIRouter(
    prefix=ROOT,
    tags=["runs"],
    responses=problems(_404="There is no such run.", _422="A value is wrong.", _503="The database is away."),
)
RunIds = Annotated[list[str], Query(description=f"A run's id; 2 to {MOST_RUNS} of them.")]


@router.get("/compare")
def compare(context: ContextOf, run: RunIds) -> ComparisonView:
    """In which settings runs differ, and each run's figures against its own baseline, over all items."""
    return compare_runs(context.sessions, run)
