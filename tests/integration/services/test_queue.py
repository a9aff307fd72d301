"""The doorbell."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from uuid import uuid4

import pytest

from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.queue import CONTROL_SECONDS, TASK, Doorbell, make_celery, queue_name
from tests.integration.services.seeds import make_settings


def test_a_message_carries_a_run_id_and_nothing_else(tmp_path: Path) -> None:
    celery = make_celery(make_settings(None, tmp_path))
    run_id = uuid4()
    doorbell = Doorbell(celery)
    doorbell.check()
    doorbell.ring(run_id, "cpu")
    with celery.connection_for_read() as connection, connection.SimpleQueue(queue_name("cpu")) as queue:
        message = queue.get(timeout=5)
        message.ack()
    doorbell.close()
    args, kwargs, _ = message.payload
    assert (args, kwargs) == ([str(run_id)], {})
    assert message.headers["task"] == TASK


def test_a_message_on_disk_is_complete_from_the_moment_it_can_be_seen(tmp_path: Path) -> None:
    doorbell = Doorbell(make_celery(make_settings(None, tmp_path)))
    for _ in range(5):
        doorbell.ring(uuid4(), "cpu")
    doorbell.close()
    files = list((tmp_path / "broker" / "messages").iterdir())
    assert len(files) == 5
    assert all(json.loads(file.read_text()) for file in files)
    assert {file.name.partition(".")[2] for file in files} == {"device.cpu.msg"}


def test_control_messages_that_no_worker_takes_are_removed_and_runs_stay(tmp_path: Path) -> None:
    celery = make_celery(make_settings(None, tmp_path))
    folder, stale = tmp_path / "broker" / "messages", time.time() - CONTROL_SECONDS - 1
    Doorbell(celery).ring(uuid4(), "cpu")
    with celery.connection_for_write() as connection:
        mailbox = celery.control.mailbox(connection)
        node = mailbox.Node("celery@ended", channel=connection.default_channel)
        node.Consumer()  # a worker that listened, and that nobody saw go
        for _ in range(3):
            for message in folder.iterdir():
                os.utime(message, (stale, stale))
            celery.control.broadcast("active", connection=connection)
    celery.close()
    queues = sorted(file.name.partition(".")[2] for file in folder.iterdir())
    assert queues == ["celery@ended.celery.pidbox.msg", "device.cpu.msg"]


def test_each_kind_of_device_has_a_queue_of_its_own() -> None:
    assert queue_name("cpu") != queue_name("cuda")


def test_a_broker_that_does_not_answer_is_said_so_soon(tmp_path: Path) -> None:
    settings = make_settings(None, tmp_path, broker_url="redis://127.0.0.1:1/0")
    doorbell = Doorbell(make_celery(settings))
    begun = time.monotonic()
    with pytest.raises(ServiceUnavailable, match="broker"):
        doorbell.ring(uuid4(), "cpu")
    with pytest.raises(ServiceUnavailable, match="broker"):
        doorbell.check()
    doorbell.close()
    assert time.monotonic() - begun < 10
