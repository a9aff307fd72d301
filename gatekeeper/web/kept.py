"""The view model of the baselines that are kept: how old they are, until when they are used, and what rests on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gatekeeper.services.baselines import BaselineView, expires_at
from gatekeeper.storage.baselines import Dependents
from gatekeeper.web import links
from gatekeeper.web.times import Moment, deadline, moment


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineLine:
    """One baseline. `expires` None: it does not; `runs`: address and name of the newest runs that rest on it."""

    view: BaselineView
    run_url: str
    state: str
    age: Moment
    expires: Moment | None
    is_expired: bool
    attempts: int
    runs: tuple[tuple[str, str], ...]


def baseline_lines(
    found: Sequence[BaselineView],
    dependents: Mapping[int, Dependents],
    *,
    max_age: timedelta,
    now: datetime,
) -> tuple[BaselineLine, ...]:
    """A line each, in the order given."""
    return tuple(_line(view, dependents[view.id], max_age=max_age, now=now) for view in found)


def _line(view: BaselineView, dependents: Dependents, *, max_age: timedelta, now: datetime) -> BaselineLine:
    end = expires_at(view, max_age=max_age)
    is_expired = end is not None and end <= now
    state = (
        "retired" if view.retired_at else "pinned" if view.pinned else "expired" if is_expired else "in use"
    )
    return BaselineLine(
        view=view,
        run_url=links.run(view.run_id),
        state=state,
        age=moment(view.created_at, now=now),
        expires=deadline(end, now=now) if end else None,
        is_expired=is_expired,
        attempts=dependents.attempts,
        runs=tuple((links.run(run_id), name) for run_id, name in dependents.newest),
    )
