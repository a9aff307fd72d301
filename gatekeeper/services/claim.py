"""Take a run and keep it: one worker at a time, for as long as it renews its lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from gatekeeper import tracing
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.run import RunState
from gatekeeper.storage import arms, events, runs
from gatekeeper.storage.codec import load_plan
from gatekeeper.storage.database import Sessions, transaction

Pulse = Literal["ok", "lost", "cancelled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A run that a worker holds. `dead_roles`: arms that died or stalled in earlier attempts."""

    run_id: UUID
    plan: Plan
    attempt: int
    dead_roles: frozenset[Role]


def claim(sessions: Sessions, run_id: UUID, *, owner: str, lease_seconds: float) -> Claim | None:
    """Take the run if it waits or its lease has expired. None: another has it, it is over, or it is unknown.

    `owner` names this claim, not only the worker: a new value for each call.
    """
    with tracing.span("claim", run_id=run_id), transaction(sessions) as session:
        run = runs.claim_run(session, run_id, owner, lease_seconds)
        if run is None:
            return None
        events.add_event(session, run_id, "state", {"state": RunState.RUNNING, "attempt": run.attempt})
        dead = arms.list_dead_roles(session, run_id, before_attempt=run.attempt)
        return Claim(run_id=run_id, plan=load_plan(run.plan), attempt=run.attempt, dead_roles=dead)


def heartbeat(sessions: Sessions, run_id: UUID, *, owner: str, lease_seconds: float) -> Pulse:
    """Renew the lease. "lost": stop and write nothing more; "cancelled": stop and call `finish_cancelled`."""
    with transaction(sessions) as session:
        to_cancel = runs.extend_lease(session, run_id, owner, lease_seconds)
    if to_cancel is None:
        return "lost"
    return "cancelled" if to_cancel else "ok"
