"""The one task: claim a run, measure it, judge it. It carries a run id and nothing else."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from datetime import timedelta
from uuid import UUID

from gatekeeper.domain.errors import LeaseLost
from gatekeeper.services.claim import Claim, claim, heartbeat
from gatekeeper.services.finish import finish_cancelled, finish_error
from gatekeeper.services.judge import judge
from gatekeeper.settings import Settings
from gatekeeper.storage.database import Sessions
from workers.devices import NoDevice, reserve
from workers.engines.errors import RunCancelled
from workers.execute import Bounds, Job, execute
from workers.guard import Guard
from workers.recorder import StoredRun
from workers.supervisor import end_marked

log = logging.getLogger(__name__)
DEVICE_WAIT_SECONDS = 20.0


def work_on(run_id: UUID, sessions: Sessions, settings: Settings) -> None:
    """Take the run if it is free and see it to its end. A message for a run that is taken or over changes nothing.

    The device is reserved before the run is claimed: while no device is free the run stays queued for any worker.
    """
    try:
        with reserve(settings.device, settings.root / "locks", wait_seconds=DEVICE_WAIT_SECONDS) as gpu:
            owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
            held = claim(sessions, run_id, owner=owner, lease_seconds=settings.lease_seconds)
            if held is not None:
                _see_through(held, owner, sessions, settings, gpu)
    except NoDevice as error:
        log.warning("run %s stays queued: %s", run_id, error)


def _see_through(held: Claim, owner: str, sessions: Sessions, settings: Settings, gpu: str | None) -> None:
    left = end_marked(f"{held.run_id}:")
    if left:
        finish_error(
            sessions, held.run_id, owner=owner, cause=f"processes {left} of an earlier attempt would not end"
        )
        return
    guard = Guard(
        lambda: heartbeat(sessions, held.run_id, owner=owner, lease_seconds=settings.lease_seconds),
        lease_seconds=settings.lease_seconds,
    )
    try:
        with guard:
            _execute_and_judge(held, owner, sessions, settings, gpu, guard)
    except LeaseLost:
        log.warning("run %s: the lease is lost, another worker has it", held.run_id)


def _execute_and_judge(
    held: Claim, owner: str, sessions: Sessions, settings: Settings, gpu: str | None, guard: Guard
) -> None:
    """See the run to one of its ends, under a living lease. Raises LeaseLost."""
    try:
        _execute(held, owner, sessions, settings, gpu, guard)
        judge(sessions, held.run_id, owner=owner)
    except RunCancelled:
        finish_cancelled(sessions, held.run_id, owner=owner)
    except LeaseLost:
        raise
    except Exception as error:
        log.exception("run %s failed", held.run_id)
        finish_error(sessions, held.run_id, owner=owner, cause=f"the worker failed: {error!r:.400}")


def _execute(
    held: Claim, owner: str, sessions: Sessions, settings: Settings, gpu: str | None, guard: Guard
) -> None:
    recorder = StoredRun(
        sessions=sessions,
        claim=held,
        owner=owner,
        baseline_max_age=timedelta(days=settings.baseline_max_age_days),
    )
    bounds = Bounds(
        start_seconds=settings.engine_start_seconds,
        stall_seconds=settings.engine_stall_seconds,
        tasks_dir=settings.tasks_dir,
        gpu=gpu,
        check=guard.check,
    )
    execute(Job(run_id=str(held.run_id), plan=held.plan, dead_roles=held.dead_roles), recorder, bounds)
