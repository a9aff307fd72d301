"""Run a change again whose run came to nothing."""

from __future__ import annotations

from uuid import UUID

from gatekeeper.domain.errors import Conflict
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Verdict
from gatekeeper.queue import Ring
from gatekeeper.services.bell import ring_after_commit
from gatekeeper.storage import deltas, events, runs
from gatekeeper.storage.database import Sessions, transaction


def retry(sessions: Sessions, run_id: UUID, *, ring: Ring) -> None:
    """Queue a run again, as a new attempt. Raises NotFound, and Conflict unless cancelled or ERROR."""
    with transaction(sessions) as session:
        run = runs.get_run(session, run_id, lock=True)
        if run.state != RunState.CANCELLED and run.verdict != Verdict.ERROR:
            raise Conflict(
                f"run {run_id} is {run.verdict or run.state}; only ERROR and cancelled runs are retried"
            )
        attempt = run.attempt + 1
        deltas.delete_deltas(session, run_id)
        answer = {"verdict": None, "sentence": None, "report": None, "finished_at": None}
        runs.set_columns(session, run_id, **runs.FRESH, **answer, attempt=attempt, takeovers=0)
        events.add_event(session, run_id, "state", {"state": RunState.QUEUED, "attempt": attempt})
        device = run.device
    ring_after_commit(ring, run_id, device)
