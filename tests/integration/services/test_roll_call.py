"""The roll call, of a real Celery worker behind the broker without a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery.contrib.testing.worker import start_worker

from gatekeeper.queue import make_celery, queue_name
from gatekeeper.roll_call import RollCall
from tests.integration.services.seeds import make_settings

LONGEST_S = 10.0
"""Far longer than a page is held up, for machines with other work, and far shorter than a broker that is away takes."""


@pytest.fixture
def roll_call(tmp_path: Path) -> Iterator[RollCall]:
    asked = RollCall(make_celery(make_settings(None, tmp_path)))
    yield asked
    asked.close()


def test_without_a_worker_the_answer_is_nobody_and_comes_soon(roll_call: RollCall) -> None:
    begun = time.monotonic()
    assert roll_call.attendance().workers == ()
    assert time.monotonic() - begun < LONGEST_S


def test_an_idle_worker_is_known_with_its_device_once_it_has_answered(
    roll_call: RollCall, tmp_path: Path
) -> None:
    celery = make_celery(make_settings(None, tmp_path))
    celery.conf.task_default_queue = queue_name("cpu")
    with start_worker(celery, pool="solo", perform_ping_check=False, shutdown_timeout=30.0):
        until = time.monotonic() + 60
        found = roll_call.attendance()
        while not (found.workers and found.workers[0].devices) and time.monotonic() < until:
            time.sleep(0.2)
            found = roll_call.attendance()
    [worker] = found.workers
    assert (worker.devices, worker.run_ids, worker.is_silent) == (("cpu",), (), False)


def test_a_broker_that_is_away_is_said_so_and_holds_nobody_up(tmp_path: Path) -> None:
    asked = RollCall(make_celery(make_settings(None, tmp_path, broker_url="redis://127.0.0.1:1/0")))
    begun = time.monotonic()
    found = asked.attendance()
    assert time.monotonic() - begun < LONGEST_S
    until = time.monotonic() + 30
    while not found.problem and time.monotonic() < until:
        time.sleep(0.1)
        found = asked.attendance()
    asked.close()
    assert "127.0.0.1:1" in found.problem
