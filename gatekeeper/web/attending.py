"""The view model of the workers: those that answered and those that hold a run, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gatekeeper.roll_call import Attendance, Present
from gatekeeper.services.workers import LeaseView
from gatekeeper.web import links
from gatekeeper.web.badges import Badge
from gatekeeper.web.run_list import progress_text
from gatekeeper.web.times import Moment, moment

HELD = Badge(word="at work", symbol="dot", tone="live")
IDLE = Badge(word="idle", symbol="check", tone="pass")
WAITING = Badge(word="taking a run", symbol="ring", tone="live")
SILENT = Badge(word="silent", symbol="question", tone="unsure")
RUN_OUT = Badge(word="lease run out", symbol="bang", tone="error")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerLine:
    """One worker. `run_name` is empty for one that is idle; `heartbeat`: when it was last heard of."""

    worker: str
    device: str
    badge: Badge
    heartbeat: Moment
    run_url: str = ""
    run_name: str = ""
    attempt: int = 1
    doing: str = ""
    since: Moment | None = None


def worker_lines(
    leases: Sequence[LeaseView], attendance: Attendance, *, lease_seconds: float, now: datetime
) -> tuple[WorkerLine, ...]:
    """Those at work first, then those that are idle. A lease whose worker did not answer stands under its own name."""
    names = {run_id: known.worker for known in attendance.workers for run_id in known.run_ids}
    held = {str(lease.run_id): lease for lease in leases}
    at_work = [
        _at_work(lease, names.get(run_id, lease.worker), lease_seconds=lease_seconds, now=now)
        for run_id, lease in held.items()
    ]
    others = [known for known in attendance.workers if not held.keys() & set(known.run_ids)]
    return (*at_work, *_others(others, now=now))


def _at_work(lease: LeaseView, worker: str, *, lease_seconds: float, now: datetime) -> WorkerLine:
    return WorkerLine(
        worker=worker,
        device=lease.device,
        badge=HELD if lease.expires_at >= now else RUN_OUT,
        heartbeat=moment(lease.expires_at - timedelta(seconds=lease_seconds), now=now),
        run_url=links.run(lease.run_id),
        run_name=lease.name,
        attempt=lease.attempt,
        doing=progress_text(lease.progress),
        since=moment(lease.started_at, now=now) if lease.started_at else None,
    )


def _others(present: Sequence[Present], *, now: datetime) -> Iterator[WorkerLine]:
    for known in present:
        yield WorkerLine(
            worker=known.worker,
            device=", ".join(known.devices) or "not said",
            badge=SILENT if known.is_silent else WAITING if known.run_ids else IDLE,
            heartbeat=moment(known.heard_at, now=now),
        )
