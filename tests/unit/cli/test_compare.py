"""`gatekeeper compare`: same report, same exit codes, and nothing but files."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.unit.importing.logs import BF16, FP8, answers, write

Run = Callable[..., Result]
POLICY = "name: mine\nrules:\n  - {metric: accuracy, max_drop: 0.05, reason: because}\n"


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Path]:
    good, bad = [True] * 100, [True] * 60 + [False] * 40
    return {
        name: write(tmp_path / name, "t", answers(right)) for name, right in (("good", good), ("bad", bad))
    }


def test_the_exit_code_tells_the_verdict(logs: dict[str, Path], run: Run) -> None:
    assert run("compare", logs["good"], logs["good"], "--policy", "default").exit_code == 0
    assert run("compare", logs["good"], logs["bad"], "--policy", "default").exit_code == 1
    assert run("compare", BF16, FP8, "--policy", "default").exit_code == 2


def test_the_report_is_that_of_a_gate_without_engine_and_run(logs: dict[str, Path], run: Run) -> None:
    result = run("compare", logs["good"], logs["bad"], "--control", logs["good"], "--policy", "default")
    lines = result.stdout.splitlines()
    assert lines[0] == "FAIL  bad against good"
    assert lines[2].startswith("FAIL: accuracy change -40.0 points")
    assert "noise floor  accuracy flips 0.0%" in lines
    assert not [line for line in lines if line.startswith(("engine", "run "))]


def test_every_format_can_be_had(logs: dict[str, Path], run: Run, tmp_path: Path) -> None:
    words = ("compare", logs["good"], logs["bad"], "--policy", "default", "--format")
    document = json.loads(run(*words, "json").stdout)
    assert (document["verdict"], document["run_id"], document["policy"]) == ("FAIL", None, "default")
    assert run(*words, "markdown").stdout.startswith("### \N{CROSS MARK} FAIL: bad against good")
    target = tmp_path / "report.xml"
    written = run(*words, "junit", "--output", target)
    assert (written.exit_code, written.stdout.splitlines()[0]) == (1, "FAIL  bad against good")
    suite = ET.parse(target).getroot().find("testsuite")
    assert suite is not None
    assert suite.get("failures") == "1"
    assert "Not applicable" in (suite.findtext("system-out") or "")


def test_a_policy_can_be_a_file(logs: dict[str, Path], run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(POLICY)
    assert run("compare", logs["good"], logs["good"], "--policy", path).exit_code == 0
    path.write_text(POLICY.replace("0.05", "5"))
    result = run("compare", logs["good"], logs["good"], "--policy", path)
    assert result.exit_code == 4
    assert "max_drop" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--policy", "nowhere"),
        ("--policy", "default", "--task", "u"),
        ("--policy", "default", "--metric", "bleu"),
        ("--policy", "default", "--output", "/nowhere/report.txt"),
        (),
    ],
)
def test_what_cannot_be_judged_is_refused(logs: dict[str, Path], run: Run, words: tuple[str, ...]) -> None:
    result = run("compare", logs["good"], logs["good"], *words)
    assert (result.exit_code, result.stdout) == (4, "")


def test_a_directory_that_is_none_is_refused(logs: dict[str, Path], run: Run, tmp_path: Path) -> None:
    assert run("compare", logs["good"], tmp_path / "none", "--policy", "default").exit_code == 4


def test_different_prompts_are_refused_naming_task_and_count(run: Run, tmp_path: Path) -> None:
    first = write(tmp_path / "first", "t", answers([True] * 9))
    second = write(tmp_path / "second", "t", answers([True] * 9, prompt_hash="another"))
    result = run("compare", first, second, "--policy", "default")
    assert result.exit_code == 4
    assert "candidate: t: 9 of 9 items have other prompts (prompt_hash)" in result.stderr


def test_an_output_in_a_folder_whose_name_is_no_text_is_compared(logs: dict[str, Path], run: Run) -> None:
    odd = logs["good"].rename(logs["good"].with_name(os.fsdecode(b"odd\xff")))
    result = run("compare", odd, odd, "--policy", "default")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "PASS  odd? against odd?")
