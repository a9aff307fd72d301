"""Look at a run under way: what need not be measured any more?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from gatekeeper.domain import interim
from gatekeeper.domain.measurement import Mode
from gatekeeper.services.waivers import plan_in_force
from gatekeeper.storage import arms, runs
from gatekeeper.storage.database import Sessions, transaction


def certain_failure(sessions: Sessions, run_id: UUID) -> str | None:
    """Why the present attempt is sure to FAIL, or None while it is not."""
    with transaction(sessions) as session:
        run = runs.get_run(session, run_id)
        return interim.certain_failure(
            plan_in_force(session, run.plan), arms.load_records(session, run_id, run.attempt)
        )


def settled(sessions: Sessions, run_id: UUID, *, suite: str, mode: Mode, batches: int) -> str | None:
    """Why the rest of a probe is not needed in one mode after its first `batches` batches, or None while it is."""
    with transaction(sessions) as session:
        run = runs.get_run(session, run_id)
        records = arms.load_records(session, run_id, run.attempt)
        return interim.settled(plan_in_force(session, run.plan), records, suite, mode, batches)


def references(sessions: Sessions, run_id: UUID, *, mode: Mode) -> Mapping[str, Sequence[int]]:
    """By item, the tokens that the baseline of the present attempt scored in a mode."""
    with transaction(sessions) as session:
        run = runs.get_run(session, run_id)
        baseline = arms.load_records(session, run_id, run.attempt)["baseline"]
        return {trace.item_id: trace.token_ids for trace in baseline.traces if trace.mode == mode}


def speed_decided(sessions: Sessions, run_id: UUID) -> bool:
    """Whether every rule on speed is decided with the pairs of launches so far."""
    with transaction(sessions) as session:
        run = runs.get_run(session, run_id)
        return interim.speed_decided(
            plan_in_force(session, run.plan), arms.load_records(session, run_id, run.attempt)
        )
