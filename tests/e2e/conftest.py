"""The real application on a real port and a real database, and a real browser to look at it."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, sync_playwright

from gatekeeper.app import create_app
from gatekeeper.services.context import Context
from gatekeeper.settings import Settings
from tests.e2e.stored_runs import StoredRuns, store_runs

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@dataclass(frozen=True)
class Site:
    """The running service."""

    url: str
    context: Context
    runs: StoredRuns


@pytest.fixture(scope="module")
def site(session_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The service on a free loopback port, with one run of every kind."""
    settings = Settings(
        home=tmp_path_factory.mktemp("home"), database_url=session_database_url, sweep_seconds=600
    )
    app = create_app(settings)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        _wait_until_started(server, thread)
        context: Context = app.state.context
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield Site(url=url, context=context, runs=store_runs(context.sessions, settings))
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium; ended with the module, since Playwright keeps an event loop running in this thread."""
    program = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on this machine; Debian's package `chromium` has it")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go."""
    return tmp_path_factory.mktemp("screenshots")


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        assert time.monotonic() < deadline
        time.sleep(0.02)
