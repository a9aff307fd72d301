"""The lines of the workers' page."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from gatekeeper.roll_call import Attendance, Present
from gatekeeper.services.views import Progress
from gatekeeper.services.workers import LeaseView
from gatekeeper.web.attending import worker_lines
from tests.unit.web import samples

NOW = samples.NOW
RUN = UUID(int=7)
LEASE = LeaseView(
    worker="gpu-1:42:abcd", run_id=RUN, name="fp8 under way", device="cuda", attempt=1,
    started_at=NOW - timedelta(minutes=3), expires_at=NOW + timedelta(seconds=50),
    progress=Progress(arm="candidate", stage="fidelity", done=4, total=16),
)  # fmt: skip


def present(worker: str, *, run_ids: tuple[str, ...] = (), is_silent: bool = False) -> Present:
    return Present(worker=worker, devices=("cuda",), run_ids=run_ids, heard_at=NOW, is_silent=is_silent)


def lines(*leases: LeaseView, workers: tuple[Present, ...] = ()) -> list[tuple[str, str, str]]:
    found = worker_lines(leases, Attendance(workers=workers), lease_seconds=60, now=NOW)
    return [(line.worker, line.badge.word, line.run_name) for line in found]


def test_idle_workers_stand_below_those_at_work() -> None:
    workers = (present("celery@gpu-0"), present("celery@gpu-1", run_ids=(str(RUN),)))
    assert lines(LEASE, workers=workers) == [
        ("celery@gpu-1", "at work", "fp8 under way"),
        ("celery@gpu-0", "idle", ""),
    ]


def test_a_lease_whose_worker_did_not_answer_is_shown_all_the_same() -> None:
    assert lines(LEASE) == [("gpu-1:42:abcd", "at work", "fp8 under way")]
    over = LEASE.model_copy(update={"expires_at": NOW - timedelta(seconds=1)})
    assert lines(over) == [("gpu-1:42:abcd", "lease run out", "fp8 under way")]


def test_a_worker_that_stopped_answering_is_silent_and_one_without_a_lease_yet_takes_its_run() -> None:
    workers = (present("a", is_silent=True), present("b", run_ids=(str(UUID(int=8)),)))
    assert lines(workers=workers) == [("a", "silent", ""), ("b", "taking a run", "")]


def test_the_last_heartbeat_of_a_lease_is_when_it_was_renewed() -> None:
    [line] = worker_lines([LEASE], Attendance(workers=()), lease_seconds=60, now=NOW)
    assert line.heartbeat.ago == "10 s ago"
