"""The real application on a real port and a real database, and a real browser to look at it."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from gatekeeper.app import create_app
from gatekeeper.services.context import Context
from gatekeeper.settings import Settings
from tests.e2e.stored_runs import StoredRuns, store_runs

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
BORN_OF_THE_TEST = re.compile("Failed to load resource: the server responded with a status of 40[04]")
Open = Callable[..., Page]
"""A path and the options of a browser context -> the page there."""


@dataclass(frozen=True)
class Site:
    """The running service."""

    url: str
    context: Context
    runs: StoredRuns


@pytest.fixture(scope="module")
def site(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The service on a free loopback port, with one run of every kind."""
    settings = Settings(
        home=tmp_path_factory.mktemp("home"), database_url=module_database_url, sweep_seconds=600
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


@pytest.fixture
def open_page(browser: Browser, site: Site) -> Iterator[Open]:
    """Open a path; at the end, nothing may have been complained about or asked of another host."""
    complaints: list[str] = []
    contexts = []

    def open_path(path: str, **options: object) -> Page:
        context = browser.new_context(base_url=site.url, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"script: {error}"))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(site.url) else complaints.append(f"asked {request.url}")
            ),
        )
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation', e => console.error('CSP', e.violatedDirective))"
        )
        page.goto(path)
        return page

    yield open_path
    for context in contexts:
        context.close()
    assert [entry for entry in complaints if not BORN_OF_THE_TEST.search(entry)] == []


def every_page(site: Site) -> dict[str, str]:
    """A path of every kind of page, by name."""
    failed = f"/runs/{site.runs.failed}"
    return {
        "runs": "/runs",
        "items": f"{failed}/items",
        "tokens": f"{failed}/tokens?item=doc-03",
        "margins": f"{failed}/rejudge",
        "history": "/history",
        "comparison": f"/compare?run={site.runs.failed}&run={site.runs.passed}",
        "baselines": "/baselines",
        "policy": "/policies/default?against=strict",
        "workers": "/workers",
        "memory": "/memory",
        "submit": "/submit?candidate.eviction.policy=sliding_window&candidate.eviction.window=256&baseline=stated",
        "submit refused": "/submit?candidate.quantization.scheme=kivi&deployment.slo.ttft_ms=fast",
        **{name: f"/runs/{run_id}" for name, run_id in vars(site.runs).items()},
    }


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        assert time.monotonic() < deadline
        time.sleep(0.02)
