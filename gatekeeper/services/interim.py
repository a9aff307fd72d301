"""Look at a run under way: is its verdict certain already?"""

from __future__ import annotations

from uuid import UUID

from gatekeeper.domain.interim import certain_failure as domain_certain_failure
from gatekeeper.storage import arms, runs
from gatekeeper.storage.codec import load_plan
from gatekeeper.storage.database import Sessions, transaction


def certain_failure(sessions: Sessions, run_id: UUID) -> str | None:
    """Why the present attempt is sure to FAIL, or None while it is not."""
    with transaction(sessions) as session:
        run = runs.get_run(session, run_id)
        return domain_certain_failure(load_plan(run.plan), arms.load_records(session, run_id, run.attempt))
