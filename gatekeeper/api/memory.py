"""The memory account over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from gatekeeper.api.dependencies import ContextOf, Document
from gatekeeper.api.documents import ROOT
from gatekeeper.api.openapi import MEMORY_BODY, problems
from gatekeeper.domain.kv_account import MemoryAccount
from gatekeeper.services.memory import answer

router = APIRouter(prefix=ROOT, tags=["memory"])


@router.post(
    "/kv-memory",
    openapi_extra=MEMORY_BODY,
    responses=problems(_422="A field is wrong, or the model is unknown or has no known shape."),
)
def kv_memory(context: ContextOf, document: Document) -> MemoryAccount:
    """Bytes of a cache, and how many sequences fit on a device. Computed; starts and stores nothing."""
    return answer(context.sessions, document)
