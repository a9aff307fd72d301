"""The HTTP API. Only here do errors become HTTP statuses."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from gatekeeper.api import (
    baselines,
    catalog,
    comparison,
    events,
    exports,
    health,
    items,
    memory,
    references,
    runs,
    waivers,
    webhooks,
)

VERSION: Final = "0.1.0"
ROUTERS: Final[tuple[APIRouter, ...]] = (
    runs.router,
    items.router,
    comparison.router,
    events.router,
    references.router,
    exports.router,
    waivers.router,
    webhooks.router,
    baselines.router,
    catalog.router,
    memory.router,
    health.router,
)
