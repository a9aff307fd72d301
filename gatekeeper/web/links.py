"""Addresses: the pages' own, and those of the API that the pages link to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from urllib.parse import quote, urlencode
from uuid import UUID

RUNS = "/runs"


def run(run_id: UUID) -> str:
    """A run's page."""
    return f"{RUNS}/{run_id}"


def action(run_id: UUID, verb: str) -> str:
    """Where the form of a button goes."""
    return f"{RUNS}/{run_id}/{verb}"


def api_run(run_id: UUID) -> str:
    """A run's document."""
    return f"/api/v1/runs/{run_id}"


def api_action(run_id: UUID, verb: str) -> str:
    """The API's own way to cancel or retry."""
    return f"{api_run(run_id)}/{verb}"


def api_deltas(run_id: UUID) -> str:
    """A run's deltas as JSON."""
    return f"{api_run(run_id)}/deltas"


def api_events(run_id: UUID) -> str:
    """A run's server-sent events, from the first on."""
    return f"{api_run(run_id)}/events"


def api_artifact(run_id: UUID, *, attempt: int, role: str, name: str) -> str:
    """A log."""
    return f"{api_run(run_id)}/artifacts/{attempt}/{quote(role, safe='')}/{quote(name)}"


def api_items(run_id: UUID, filters: Mapping[str, object] = MappingProxyType({})) -> str:
    """Both arms' figures of every item, or of those that meet the filters, as JSON."""
    return _with_words(f"{api_run(run_id)}/items", filters)


def flips(run_id: UUID) -> str:
    """The page of items whose outcome changed."""
    return f"{run(run_id)}/items"


def tokens(run_id: UUID, *, mode: str, item_id: str, place: int | None = None) -> str:
    """The page of one document's tokens; `place` counts from 1."""
    words = {"mode": mode, "item": item_id} | ({"place": str(place)} if place is not None else {})
    return f"{run(run_id)}/tokens?{urlencode(words)}"


def api_tokens(run_id: UUID, *, mode: str, item_id: str) -> str:
    """The same as JSON."""
    return f"{api_run(run_id)}/tokens?{urlencode({'mode': mode, 'item_id': item_id})}"


def api_partings(run_id: UUID, filters: Mapping[str, object]) -> str:
    """Where the arms' greedy choices part, as JSON."""
    return _with_words(f"{api_run(run_id)}/partings", filters)


def rejudge(run_id: UUID) -> str:
    """The page that judges a run again."""
    return f"{run(run_id)}/rejudge"


def api_comparison(run_ids: Iterable[UUID]) -> str:
    """Runs side by side, as JSON."""
    return f"/api/v1/compare?{urlencode([('run', run_id) for run_id in run_ids])}"


def api_all_deltas(**filters: str) -> str:
    """Deltas across runs, as JSON; empty filters are left out."""
    return _with_words("/api/v1/deltas", {name: value for name, value in filters.items() if value})


def _with_words(address: str, words: Mapping[str, object]) -> str:
    return f"{address}?{urlencode(words)}" if words else address
