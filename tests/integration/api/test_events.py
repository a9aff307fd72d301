"""Server-sent events."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from fastapi.testclient import TestClient

from gatekeeper.services import record
from gatekeeper.services.cancel import cancel
from gatekeeper.services.finish import finish_error
from tests.integration.services.seeds import World


def kinds(text: str) -> list[str]:
    """The names of the events in a stream."""
    return [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]


def test_the_stream_of_a_finished_run_tells_its_whole_story_and_ends(
    world: World, client: TestClient
) -> None:
    run_id = world.submit()
    world.claim(run_id)
    finish_error(world.sessions, run_id, owner="worker-1", cause="no device")
    answer = client.get(f"/api/v1/runs/{run_id}/events")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert kinds(answer.text) == ["state", "state", "state"]
    assert '"verdict": "ERROR"' in answer.text


def test_a_client_that_comes_back_gets_what_it_missed_and_then_is_told_to_stop(
    world: World, client: TestClient
) -> None:
    run_id = world.submit()
    cancel(world.sessions, run_id)
    path = f"/api/v1/runs/{run_id}/events"
    ids = [
        line.removeprefix("id: ") for line in client.get(path).text.splitlines() if line.startswith("id: ")
    ]
    assert len(ids) == 2
    assert kinds(client.get(path, headers={"Last-Event-ID": ids[0]}).text) == ["state"]
    assert client.get(path, headers={"Last-Event-ID": ids[1]}).status_code == 204


@pytest.mark.parametrize("last", ["x", "-1", "9" * 30])
def test_a_last_event_id_that_is_none_is_422(world: World, client: TestClient, last: str) -> None:
    answer = client.get(f"/api/v1/runs/{world.submit()}/events", headers={"Last-Event-ID": last})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "last-event-id")


@pytest.fixture
def server(world: World, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The application in a process of its own: (URL, process)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "DATABASE_URL": str(world.settings.database_url), "GATEKEEPER_HOME": str(tmp_path / "home")
    }  # fmt: skip
    argv = [sys.executable, "-m", "uvicorn", "gatekeeper.app:create_app", "--factory", "--port", str(port)]
    log = (tmp_path / "server.log").open("wb")
    with log, subprocess.Popen(argv, env=environment, stdout=log, stderr=log) as process:
        url = f"http://127.0.0.1:{port}"
        _await_health(url, process)
        yield url, process
        process.kill()


def _await_health(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/healthz", trust_env=False).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")


def test_events_arrive_while_the_run_goes_on_and_the_stream_ends_with_it(
    world: World, server: tuple[str, subprocess.Popen[bytes]]
) -> None:
    url, _ = server
    run_id = world.submit()
    with httpx.stream("GET", f"{url}/api/v1/runs/{run_id}/events", timeout=30, trust_env=False) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        assert '"queued"' in next(lines)
        world.claim(run_id)
        assert '"running"' in next(lines)
        _progress(world, run_id)
        assert '"done": 3' in next(lines)
        finish_error(world.sessions, run_id, owner="worker-1", cause="no device")
        assert '"finished"' in next(lines)
        assert list(lines) == []


def test_an_open_stream_does_not_keep_the_service_from_stopping(
    world: World, server: tuple[str, subprocess.Popen[bytes]]
) -> None:
    url, process = server
    with httpx.stream(
        "GET", f"{url}/api/v1/runs/{world.submit()}/events", timeout=30, trust_env=False
    ) as answer:
        next(answer.iter_lines())
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=10)
    assert process.returncode in (0, -signal.SIGTERM)


def _progress(world: World, run_id: UUID) -> None:
    record.progress(
        world.sessions, run_id, owner="worker-1", stage="fidelity", arm="baseline", done=3, total=16
    )
