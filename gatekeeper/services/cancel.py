"""Cancel a run: at once while it waits; through its worker's next heartbeat while it runs."""

from __future__ import annotations

from uuid import UUID

from gatekeeper.domain.errors import Conflict
from gatekeeper.domain.run import RunState
from gatekeeper.storage import events, runs
from gatekeeper.storage.base import NOW
from gatekeeper.storage.database import Sessions, transaction


def cancel(sessions: Sessions, run_id: UUID) -> None:
    """Cancel a run; again is no error. Raises NotFound, and Conflict once it has finished."""
    with transaction(sessions) as session:
        run = runs.get_run(session, run_id, lock=True)
        match RunState(run.state):
            case RunState.QUEUED:
                runs.set_columns(session, run_id, state=RunState.CANCELLED, finished_at=NOW)
                events.add_event(
                    session, run_id, "state", {"state": RunState.CANCELLED, "attempt": run.attempt}
                )
            case RunState.RUNNING if not run.cancel_requested:
                runs.set_columns(session, run_id, cancel_requested=True)
                events.add_event(session, run_id, "cancel_requested", {"attempt": run.attempt})
            case RunState.FINISHED:
                raise Conflict(f"run {run_id} has finished with {run.verdict}")
            case RunState.RUNNING | RunState.CANCELLED:
                pass
