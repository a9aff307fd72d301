"""What a change can name: models, suites, policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastapi import APIRouter

from gatekeeper import catalog
from gatekeeper.api.dependencies import ContextOf
from gatekeeper.api.documents import ROOT, CatalogEntry, CatalogList, ModelList
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.suite import Suite
from gatekeeper.services import models

router = APIRouter(prefix=ROOT, tags=["catalog"])


@router.get("/models")
def list_models(context: ContextOf) -> ModelList:
    """The models that the operator registered."""
    return ModelList(items=models.list_models(context.sessions))


@router.get("/suites")
def list_suites(context: ContextOf) -> CatalogList:
    """The suites, bundled and the operator's."""
    extra = context.settings.catalog_dir
    return _entries("suites", extra, lambda name: catalog.get_suite(name, extra=extra))


@router.get("/policies")
def list_policies(context: ContextOf) -> CatalogList:
    """The policies, bundled and the operator's."""
    extra = context.settings.catalog_dir
    return _entries("policies", extra, lambda name: catalog.get_policy(name, extra=extra))


def _entries(folder: str, extra: Path | None, get: Callable[[str], Suite | Policy]) -> CatalogList:
    return CatalogList(items=[_entry(name, get) for name in catalog.list_names(folder, extra)])


def _entry(name: str, get: Callable[[str], Suite | Policy]) -> CatalogEntry:
    try:
        return CatalogEntry(name=name, content=get(name))
    except GatekeeperError as error:
        return CatalogEntry(name=name, error=str(error))
