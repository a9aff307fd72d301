"""`gatekeeper gate` against a service that answers as the real one does."""

from __future__ import annotations

import json
import os
import signal
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from gatekeeper.domain.verdict import Verdict
from tests.unit.cli.fake_service import RUN, FakeService
from tests.unit.reporting.samples import SENTENCES, document

Run = Callable[..., Result]
CODES = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 2, Verdict.INVALID: 2, Verdict.ERROR: 3}


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_exit_code_tells_the_verdict(
    service: FakeService, run: Run, change: Path, verdict: Verdict
) -> None:
    service.plays(document(verdict))
    result = run("gate", change, "--server", service.url)
    assert result.exit_code == CODES[verdict]
    assert result.stdout.startswith(f"{verdict}  fp8_e4m3\n")
    assert "\x1b" not in result.stdout


def test_a_run_that_somebody_cancelled_has_no_verdict_and_ends_with_3(
    service: FakeService, run: Run, change: Path
) -> None:
    service.plays(document(None, state="cancelled"))
    result = run("gate", change, "--server", service.url)
    assert result.exit_code == 3
    assert result.stdout.startswith("CANCELLED  fp8_e4m3\n")


def test_progress_goes_to_stderr_and_only_the_result_to_stdout(
    service: FakeService, run: Run, change: Path
) -> None:
    service.plays(document(None), document(Verdict.PASS))
    result = run("gate", change, "--server", service.url, "--format", "json")
    assert json.loads(result.stdout) == document(Verdict.PASS)
    assert "fp8_e4m3: candidate, fidelity 4/16  0 s" in result.stderr
    assert f"{service.url}/runs/r-1" in result.stderr


def test_rules_that_this_run_cannot_decide_are_named_at_the_start(
    service: FakeService, run: Run, change: Path
) -> None:
    service.plays(document(Verdict.PASS))
    seen = [
        {"metric": "accuracy", "severity": "block", "outlook": "undecidable", "sentence": "too few items"},
        {"metric": "decode_kl", "severity": "block", "outlook": "decidable", "sentence": "16 documents"},
    ]
    service.reply(
        "POST /api/v1/runs",
        {
            "run_id": "r-1",
            "name": "fp8_e4m3",
            "state": "queued",
            "foresight": seen,
            "coverage_gaps": ["max_context 4096 > 640 tokens reached"],
        },
    )
    result = run("gate", change, "--server", service.url)
    assert "not decidable: accuracy (block): too few items" in result.stderr
    assert "16 documents" not in result.stderr
    assert "no PASS is possible: coverage: max_context 4096 > 640 tokens reached" in result.stderr


def test_junit_and_markdown_can_be_written_to_a_file(
    service: FakeService, run: Run, change: Path, tmp_path: Path
) -> None:
    service.plays(document(Verdict.FAIL))
    target = tmp_path / "report.xml"
    result = run("gate", change, "--server", service.url, "--format", "junit", "--output", target)
    assert result.exit_code == 1
    assert result.stdout == f"FAIL  fp8_e4m3\n{SENTENCES[Verdict.FAIL]}\n"
    suite = ET.parse(target).getroot().find("testsuite")
    assert suite is not None
    assert suite.get("failures") == "1"


def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(
    service: FakeService, run: Run, change: Path, tmp_path: Path
) -> None:
    result = run("gate", change, "--server", service.url, "--output", tmp_path / "nowhere" / "report.txt")
    assert result.exit_code == 4
    assert service.seen == []


def test_suite_and_policy_of_the_command_line_win(service: FakeService, run: Run, change: Path) -> None:
    service.plays(document())
    run("gate", change, "--server", service.url, "--suite", "smoke", "--policy", "fast")
    [body] = service.bodies("POST /api/v1/runs")
    assert (body["suite"], body["policy"], body["model"]) == ("smoke", "fast", "smollm2-135m")


def test_a_serve_command_is_sent_word_by_word(service: FakeService, run: Run) -> None:
    service.plays(document())
    words = ["vllm", "serve", "m", "--kv-cache-dtype", "fp8"]
    assert run("gate", "--server", service.url, "--suite", "smoke", "--", *words).exit_code == 0
    assert service.bodies("POST /api/v1/runs") == [{"command": words, "suite": "smoke"}]


def test_a_refusal_of_the_service_names_each_field(service: FakeService, run: Run, change: Path) -> None:
    errors = [{"field": "model", "problem": "unknown 'gpt'", "allowed": "smollm2-135m"}]
    problem = {"title": "Refused", "detail": "The input was refused", "errors": errors}
    service.reply("POST /api/v1/runs", (422, problem))
    result = run("gate", change, "--server", service.url)
    assert result.exit_code == 4
    assert result.stdout == ""
    assert "model: unknown 'gpt' (allowed: smollm2-135m)" in result.stderr


@pytest.mark.parametrize(
    ("status", "words"), [(500, "answered 500"), (503, "no database"), (401, "GATEKEEPER_API_TOKEN")]
)
def test_a_service_that_fails_is_no_verdict(
    service: FakeService, run: Run, change: Path, status: int, words: str
) -> None:
    service.reply("POST /api/v1/runs", (status, {"detail": "no database"}))
    result = run("gate", change, "--server", service.url)
    assert result.exit_code == 3
    assert words in result.stderr


def test_something_else_that_answers_there_is_no_verdict(
    service: FakeService, run: Run, change: Path
) -> None:
    service.reply("POST /api/v1/runs", (200, "<html>welcome</html>"))
    result = run("gate", change, "--server", service.url)
    assert result.exit_code == 3
    assert "not as gatekeeper" in result.stderr


def test_nobody_there_ends_with_3(run: Run, change: Path) -> None:
    result = run("gate", change, "--server", "http://127.0.0.1:9")
    assert result.exit_code == 3
    assert "http://127.0.0.1:9" in result.stderr


def test_no_address_is_refused(run: Run, change: Path) -> None:
    assert run("gate", change, "--server", "localhost").exit_code == 4


def test_the_token_of_the_environment_is_sent(
    service: FakeService, run: Run, change: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEKEEPER_API_TOKEN", "s3cret")
    service.plays(document())
    run("gate", change, "--server", service.url)
    assert {headers["Authorization"] for _, _, headers in service.seen} == {"Bearer s3cret"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_wait_says_that_the_run_goes_on(
    service: FakeService, run: Run, change: Path, number: signal.Signals, code: int
) -> None:
    def interrupt(route: str) -> None:
        if route == f"GET {RUN}":
            os.kill(os.getpid(), number)

    service.plays(document(None))
    service.on_request = interrupt
    result = run("gate", change, "--server", service.url)
    assert result.exit_code == code
    assert "the run goes on" in result.stderr
    assert "gatekeeper show --wait r-1" in result.stderr
    assert service.bodies(f"POST {RUN}/cancel") == []


def test_a_policy_file_is_not_for_a_service_of_somebody_else(
    service: FakeService, run: Run, change: Path, tmp_path: Path
) -> None:
    result = run("gate", change, "--server", service.url, "--policy", tmp_path / "mine.yaml")
    assert result.exit_code == 4
    assert "policy: this service takes no files" in result.stderr
    assert service.seen == []


def test_an_answer_of_another_version_is_no_verdict_in_text_but_is_json(
    service: FakeService, run: Run, change: Path
) -> None:
    service.plays(document(Verdict.PASS, findings=[{"outcome": "Splendid"}]))
    assert run("gate", change, "--server", service.url).exit_code == 3
    assert run("gate", change, "--server", service.url, "--format", "json").exit_code == 0


@pytest.mark.parametrize(
    "words", [("gate",), ("gate", "a", "b"), ("gate", "x", "--format", "pdf"), ("gaet",), ()]
)
def test_a_wrong_command_line_never_looks_like_a_verdict(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 4


def test_a_crash_never_looks_like_a_verdict(run: Run, change: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("gatekeeper.cli.gate.read_words", crash)
    result = run("gate", change)
    assert result.exit_code == 3
    assert "a bug" in result.stderr


def test_one_run_can_be_reported_in_several_formats(
    service: FakeService, run: Run, change: Path, tmp_path: Path
) -> None:
    service.plays(document(Verdict.FAIL))
    names = {"markdown": "### \N{CROSS MARK} FAIL", "sarif": '"level": "error"', "junit": "<failure"}
    words = [word for name in names for word in ("--report", f"{name}={tmp_path / name}")]
    assert run("gate", change, *words, "--server", service.url).exit_code == 1
    assert {
        name: expected in (tmp_path / name).read_text() for name, expected in names.items()
    } == dict.fromkeys(names, True)
    assert run("gate", change, "--report", "html=x", "--server", service.url).exit_code == 4
