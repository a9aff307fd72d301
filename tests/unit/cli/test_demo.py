"""`gatekeeper demo` with a stack that is a fake service."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result

from gatekeeper.cli.signals import Interrupted
from gatekeeper.domain.verdict import Verdict
from tests.unit.cli.fake_service import RUN, FakeService
from tests.unit.reporting.samples import document

Run = Callable[..., Result]
NAMES = ("fp8_e4m3", "fp8_e5m2", "prefix_caching")


@pytest.fixture
def stack(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stack that is up already; `check` is called while it serves."""
    fake = SimpleNamespace(url=service.url, logs={}, check=lambda: None)

    @contextmanager
    def started(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield fake

    monkeypatch.setattr("gatekeeper.cli.demo.running_stack", started)
    monkeypatch.setattr("gatekeeper.cli.up.WATCH_S", 0.0)
    return fake


def play(service: FakeService, *verdicts: Verdict) -> None:
    service.reply(
        "POST /api/v1/runs", *((202, {"run_id": "r-1", "name": name, "state": "queued"}) for name in NAMES)
    )
    service.reply(
        f"GET {RUN}", *(document(verdict, name=name) for name, verdict in zip(NAMES, verdicts, strict=True))
    )


def test_each_change_has_a_line_that_begins_with_verdict_and_name(
    service: FakeService, stack: SimpleNamespace, run: Run
) -> None:
    play(service, Verdict.PASS, Verdict.FAIL, Verdict.PASS)
    result = run("demo", "--once")
    assert stack.url == service.url
    assert result.exit_code == 0
    heads = [line for line in result.stdout.splitlines() if line.startswith(("PASS  ", "FAIL  "))]
    assert heads == ["PASS  fp8_e4m3", "FAIL  fp8_e5m2", "PASS  prefix_caching"]
    assert re.search(
        r"3 of 3 verdicts in \d+ s: PASS fp8_e4m3, FAIL fp8_e5m2, PASS prefix_caching", result.stdout
    )
    assert [body["suite"] for body in service.bodies("POST /api/v1/runs")] == ["smoke"] * 3


@pytest.mark.usefixtures("stack")
def test_an_error_is_no_verdict_reached(service: FakeService, run: Run) -> None:
    play(service, Verdict.PASS, Verdict.ERROR, Verdict.INVALID)
    result = run("demo", "--once")
    assert result.exit_code == 3
    assert "2 of 3 verdicts" in result.stdout


def test_without_once_it_serves_until_interrupted(
    service: FakeService, stack: SimpleNamespace, run: Run
) -> None:
    def interrupt() -> None:
        raise Interrupted(2)

    stack.check = interrupt
    play(service, Verdict.PASS, Verdict.FAIL, Verdict.PASS)
    result = run("demo")
    assert result.exit_code == 0
    assert f"The web UI is at {service.url}" in result.stdout


@pytest.mark.usefixtures("stack")
def test_missing_examples_are_named_before_anything_starts(
    run: Run, tmp_path: Path, service: FakeService
) -> None:
    result = run("demo", "--examples", tmp_path)
    assert result.exit_code == 4
    assert "fp8_e4m3.yaml is missing" in result.stderr
    assert service.seen == []
