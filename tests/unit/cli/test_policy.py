"""`gatekeeper policy`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from gatekeeper.domain.policy_schema import policy_schema

Run = Callable[..., Result]
GOOD = """# yaml-language-server: $schema=policy.schema.json
name: chat
rules:
  - {metric: decode_kl, at_most_noise_multiple: 3, limit_floor: 0.1, mode: warm, reason: Caches are warm here.}
  - {metric: kv_capacity_ratio, at_least: 1.8, reason: That is what the change is for.}
"""


def test_check_says_each_rule_as_a_sentence(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text(GOOD)
    result = run("policy", "check", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "chat: 2 rules; a wrong PASS and a wrong FAIL at most 5% each",
        "- Decode KL, warm: at most 3 times what the baseline's launches differ by, or 0.1 nats/token if that is more.",
        "    Caches are warm here.",
        "- KV capacity: at least 1.8x the baseline's.",
        "    That is what the change is for.",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("at_least", "at_most"), "takes the limit at_least, not at_most"),
        (
            GOOD.replace("at_least: 1.8", "atleast: 1.8"),
            "rules.1.atleast: unknown key (allowed: metric, max_drop",
        ),
        (GOOD.replace("3,", ".nan,"), "rules.0.at_most_noise_multiple"),
        (GOOD + "name: again\n", "key 'name' appears twice"),
        ("- a list\n", "expected a mapping"),
        ("name: {\n", "could not be read"),
    ],
)
def test_check_refuses_naming_what_is_wrong(run: Run, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    result = run("policy", "check", path)
    assert (result.exit_code, result.stdout) == (4, "")
    assert words in result.stderr


def test_check_of_no_file_is_refused(run: Run, tmp_path: Path) -> None:
    assert run("policy", "check", tmp_path / "none.yaml").exit_code == 4


def test_list_and_show_know_the_operators_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "catalog" / "policies"
    folder.mkdir(parents=True)
    (folder / "chat.yaml").write_text(GOOD)
    (folder / "broken.yaml").write_text("name: broken\n")
    monkeypatch.setenv("GATEKEEPER_CATALOG_DIR", str(folder.parent))
    listed = run("policy", "list").stdout.splitlines()
    assert [line for line in listed if not line.startswith(" ")] == [
        "broken",
        "chat",
        "decode",
        "deep",
        "default",
        "fast",
        "retrieval",
        "strict",
    ]
    assert "    cannot be used: The input was refused: policies/broken.yaml: rules: is missing" in listed
    assert run("policy", "show", "chat").stdout == GOOD
    assert yaml.safe_load(run("policy", "show", "strict").stdout)["name"] == "strict"
    unknown = run("policy", "show", "lax")
    assert (unknown.exit_code, "broken, chat, decode" in unknown.stderr) == (4, True)


def test_schema_prints_the_schema(run: Run) -> None:
    assert json.loads(run("policy", "schema").stdout) == policy_schema()
