"""`gatekeeper rejudge` against a service that answers as the real one does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from gatekeeper.domain.verdict import Verdict
from tests.unit.cli.fake_service import RUN, FakeService
from tests.unit.reporting.samples import document

Run = Callable[..., Result]
CODES = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 2, Verdict.INVALID: 2, Verdict.ERROR: 3}
ROUTE = f"POST {RUN}/rejudge"


@pytest.mark.parametrize("verdict", list(Verdict))
def test_report_and_exit_code_are_those_of_a_gate(service: FakeService, run: Run, verdict: Verdict) -> None:
    service.reply(ROUTE, document(verdict))
    result = run("rejudge", "r-1", "--policy", "fast", "--server", service.url)
    assert result.exit_code == CODES[verdict]
    assert result.stdout.startswith(f"{verdict}  fp8_e4m3\n")
    assert f"{service.url}/runs/r-1" in result.stdout
    assert service.bodies(ROUTE) == [{"policy": "fast"}]


def test_a_policy_file_is_sent_whole(service: FakeService, run: Run, tmp_path: Path) -> None:
    service.reply(ROUTE, document(Verdict.FAIL))
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nrules:\n  - {metric: decode_kl, at_most: 0.01, reason: r}\n")
    result = run("rejudge", "r-1", "--policy", path, "--server", service.url, "--format", "json")
    assert json.loads(result.stdout) == document(Verdict.FAIL)
    rules = [{"metric": "decode_kl", "at_most": 0.01, "reason": "r"}]
    assert service.bodies(ROUTE) == [{"policy": {"name": "mine", "rules": rules}}]


def test_a_refusal_names_each_field(service: FakeService, run: Run) -> None:
    errors = [{"field": "policy.rules.0", "problem": "unknown metric 'vibes'", "allowed": ""}]
    service.reply(ROUTE, (422, {"detail": "refused", "errors": errors}))
    result = run("rejudge", "r-1", "--policy", "fast", "--server", service.url)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "policy.rules.0: unknown metric 'vibes'" in result.stderr


def test_a_run_that_was_never_judged_is_refused(service: FakeService, run: Run) -> None:
    service.reply(ROUTE, (409, {"detail": "run r-1 is queued"}))
    result = run("rejudge", "r-1", "--policy", "fast", "--server", service.url)
    assert result.exit_code == 4
    assert "run r-1 is queued" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("r-1",),
        ("--policy", "fast"),
        ("--verify", "--policy", "fast"),
        ("--verify", "--server", "http://127.0.0.1:9"),
        ("r-1", "--policy", "/nowhere/mine.yaml"),
    ],
)
def test_a_wrong_command_line_never_looks_like_a_verdict(run: Run, words: tuple[str, ...]) -> None:
    assert run("rejudge", *words).exit_code == 4


def test_without_a_service_the_way_to_one_is_named(run: Run) -> None:
    result = run("rejudge", "r-1", "--policy", "fast")
    assert result.exit_code == 3
    assert "gatekeeper up" in result.stderr
