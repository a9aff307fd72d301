"""What other programs take: tables of deltas, and the schema of reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from gatekeeper.api.dependencies import ContextOf
from gatekeeper.api.documents import ROOT
from gatekeeper.api.openapi import problems
from gatekeeper.domain.report_schema import report_schema
from gatekeeper.reporting.export import csv_lines, parquet_bytes
from gatekeeper.services import history
from gatekeeper.services.history import DeltaFilters
from gatekeeper.storage.database import Sessions

router = APIRouter(prefix=ROOT, tags=["exports"], responses=problems(_422="A value is wrong."))

CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"


class ExportFilters(DeltaFilters):
    """Which deltas, and as what. `limit` is that of a page, and all pages are taken."""

    run_id: UUID | None = None
    format: Literal["csv", "parquet"] = "csv"


@router.get(
    "/export/deltas",
    response_class=Response,
    responses={200: {"content": {CSV: {}, PARQUET: {}}, "description": "All deltas that meet the filters."}},
)
def export_deltas(context: ContextOf, filters: Annotated[ExportFilters, Query()]) -> Response:
    """All deltas that meet the filters, newest first, as one table."""
    rows = _rows(context.sessions, filters)
    name = {"Content-Disposition": f'attachment; filename="deltas.{filters.format}"'}
    if filters.format == "parquet":
        return Response(parquet_bytes(rows), media_type=PARQUET, headers=name)
    return StreamingResponse(csv_lines(rows), media_type=CSV, headers=name)


@router.get("/schema/report")
def get_report_schema() -> dict[str, Any]:
    """The JSON Schema of a verdict's report, versioned by its `$id`."""
    return report_schema()


def _rows(sessions: Sessions, filters: ExportFilters) -> Iterator[dict[str, Any]]:
    """Page by page, so that a long history is never in memory as a whole. The first is read before any is sent."""
    asked = DeltaFilters(**filters.model_dump(exclude={"run_id", "format"})).model_copy(
        update={"limit": history.MAX_PAGE}
    )
    page = history.list_deltas(sessions, asked, run_id=filters.run_id)

    def following() -> Iterator[dict[str, Any]]:
        current = page
        while True:
            yield from (delta.model_dump(mode="json") for delta in current.items)
            if current.next_cursor is None:
                return
            later = asked.model_copy(update={"cursor": current.next_cursor})
            current = history.list_deltas(sessions, later, run_id=filters.run_id)

    return following()
