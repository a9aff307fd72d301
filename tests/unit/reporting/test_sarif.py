"""SARIF for code hosts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gatekeeper.domain.verdict import Outcome, Verdict
from gatekeeper.reporting import RENDERERS
from tests.unit.reporting.samples import KL, document, finding


def sarif(*runs: dict[str, Any]) -> list[dict[str, Any]]:
    rendered = json.loads(RENDERERS["sarif"](list(runs)))
    assert rendered["version"] == "2.1.0"
    found: list[dict[str, Any]] = rendered["runs"]
    return found


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_closed_gate_has_an_error_and_an_open_one_none(verdict: Verdict) -> None:
    [run] = sarif(document(verdict))
    levels = [result["level"] for result in run["results"]]
    assert ("error" in levels) == (verdict is not Verdict.PASS)
    known = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} <= known


def test_a_result_points_at_the_manifest_that_states_the_change() -> None:
    [run] = sarif(document(Verdict.FAIL, change={"ref": {"path": "deploy/vllm.yaml"}}))
    [place] = run["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "deploy/vllm.yaml"}


def test_a_waived_rule_is_suppressed_with_its_reason() -> None:
    waived = finding("decode_kl", Outcome.WAIVED, detail="waived by Ada until 2027-01-15", of=KL)
    [run] = sarif(document(Verdict.PASS, findings=[waived.model_dump(mode="json")]))
    assert run["results"][0]["suppressions"][0]["justification"] == "waived by Ada until 2027-01-15"


def test_every_change_is_a_run_of_its_own_and_none_is_valid_too() -> None:
    assert len(sarif(document(Verdict.PASS), document(Verdict.FAIL))) == 2
    assert sarif() == []
    assert "<testsuites />" in RENDERERS["junit"]([])
    assert RENDERERS["json"]([]) == "[]\n"
