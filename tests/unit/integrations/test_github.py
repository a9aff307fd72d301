"""The action's scripts, with stand-ins for `gatekeeper` and `gh`."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "integrations" / "github"
GATEKEEPER = """#!/bin/sh
printf '%s\\n' "$@" > "$SAID/words"
for word; do case $word in markdown=*) [ -z "$REPORTED" ] || echo "$REPORTED" > "${word#*=}" ;; esac; done
echo "refused: model" >&2
exit "$CODE"
"""
GH = """#!/bin/sh
printf '%s ' "$@" >> "$SAID/gh"; echo >> "$SAID/gh"
case "$*" in *--paginate*) printf '%b' "$EARLIER" ;; *viewer*) echo 'github-actions[bot]' ;; esac
for word; do case $word in body=@*) cp "${word#body=@}" "$SAID/body" ;; esac; done
"""


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """Where the stand-ins write what they were asked."""
    for name, text in (("gatekeeper", GATEKEEPER), ("gh", GH)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    return tmp_path


def run(said: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    files = {"GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary", "SAID": "", "RUNNER_TEMP": ""}
    own = {name: str(said / path) for name, path in files.items()}
    own |= {"BASE": "origin/main", "GITHUB_REPOSITORY": "o/r", "PATH": f"{said / 'bin'}:{os.environ['PATH']}"}
    command = ["bash", str(SCRIPTS / script)]
    return subprocess.run(
        command, env=own | variables, capture_output=True, text=True, check=False, timeout=30
    )


def test_the_verdict_is_an_output_and_the_report_the_summary(said: Path) -> None:
    done = run(
        said, "gate.sh", CODE="1", REPORTED="### FAIL: fp8", CHANGED_PATHS="deploy\n*.yaml\n", SUITE="smoke"
    )
    assert done.returncode == 0, done.stderr
    assert (said / "summary").read_text() == "### FAIL: fp8\n"
    assert "exit-code=1" in (said / "output").read_text().splitlines()
    words = (said / "words").read_text().splitlines()
    assert words[-6:] == ["--detected", "--base", "origin/main", "--", "deploy", "*.yaml"]
    assert words[words.index("--suite") + 1] == "smoke"


def test_without_a_verdict_the_summary_says_what_was_refused(said: Path) -> None:
    run(said, "gate.sh", CODE="4", REPORTED="", CHANGE="change.yaml")
    assert "no verdict" in (said / "summary").read_text()
    assert "refused: model" in (said / "summary").read_text()
    assert (said / "words").read_text().splitlines()[-1] == "change.yaml"


@pytest.mark.parametrize(
    ("earlier", "method"),
    [
        ("", "--method POST repos/o/r/issues/7/comments"),
        ("11\\n12\\n", "--method PATCH repos/o/r/issues/comments/11"),
    ],
)
def test_one_comment_is_posted_and_then_updated(said: Path, earlier: str, method: str) -> None:
    (said / "report.md").write_text("### PASS\n")
    done = run(said, "comment.sh", REPORT=str(said / "report.md"), NUMBER="7", EARLIER=earlier)
    assert done.returncode == 0, done.stderr
    asked = (said / "gh").read_text()
    assert method in asked
    marker, rest = (said / "body").read_text().split("\n", 1)
    assert f'select(.user.login == "github-actions[bot]" and (.body | startswith("{marker}")))' in asked
    assert rest == "### PASS\n"


def test_every_key_has_a_comment_of_its_own(said: Path) -> None:
    (said / "report.md").write_text("### PASS\n")
    keys = ("", "models/a.yaml", "models/b.yaml", "--> ### PASS", 'a" or true or "', "a\nb", "models/a.yaml")
    markers = []
    for key in keys:
        run(said, "comment.sh", REPORT=str(said / "report.md"), NUMBER="7", EARLIER="", COMMENT_KEY=key)
        markers.append((said / "body").read_text().splitlines()[0])
    assert all(re.fullmatch("<!-- gatekeeper [0-9a-f]+ -->", marker) for marker in markers)
    assert markers[1] == markers[-1]
    assert len(set(markers)) == len(set(keys))


def test_the_usual_key_says_what_is_gated() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (key,) = (step["env"]["COMMENT_KEY"] for step in action["runs"]["steps"] if "COMMENT_KEY" in step["env"])
    gated = {"server", "change", "paths", "model", "suite", "policy"}
    assert set(re.findall(r"inputs\.([a-z-]+)", key)) == gated | {"comment-key"}


def test_a_long_report_is_cut_at_a_line_to_what_a_comment_holds(said: Path) -> None:
    row = "| \N{WHITE HEAVY CHECK MARK} Passed | decode KL | 0.012 |"
    short = ["<details><summary>rules</summary>", "", row, "", "</details>", ""]
    long = ["<details><summary>all</summary>", "", *[row] * 2_000, "", "</details>", "", "Run: 1"]
    (said / "report.md").write_text("\n".join(["### PASS", "", *short, *long]) + "\n")
    run(said, "comment.sh", REPORT=str(said / "report.md"), NUMBER="7", EARLIER="")
    body = (said / "body").read_text()
    assert 59_000 < len(body.encode()) < 65_536
    lines = body.splitlines()
    assert lines[-4:] == ["", "</details>", "", "The rest is in the summary of the job."]
    assert set(lines[9:-4]) <= {*long[:2], row}
    assert body.count("<details>") == body.count("</details>") == 2


def test_a_line_longer_than_a_comment_is_left_out(said: Path) -> None:
    (said / "report.md").write_text("### PASS\n" + "x" * 70_000)
    run(said, "comment.sh", REPORT=str(said / "report.md"), NUMBER="7", EARLIER="")
    assert (said / "body").read_text().splitlines()[1:] == [
        "### PASS", "", "The rest is in the summary of the job.",
    ]  # fmt: skip


def test_every_script_and_input_that_the_action_names_is_there() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    text = (ROOT / "action.yml").read_text()
    assert all(f"inputs.{name}" in text for name in action["inputs"])
    for step in action["runs"]["steps"]:
        _, found, script = step["run"].partition("$GITHUB_ACTION_PATH/")
        assert not found or (ROOT / script.strip('"')).is_file()
    for path in ("github/workflow.yml", "gitlab/gatekeeper.gitlab-ci.yml"):
        assert yaml.safe_load((ROOT / "integrations" / path).read_text())
