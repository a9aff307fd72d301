"""Items from which nothing was evicted are no evidence of a policy that evicts."""

from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.domain.measurement import EVICTED_TOKENS, EffectiveConfig, Exercise
from gatekeeper.domain.verdict import Report, Verdict
from tests.unit.domain.test_judge import arms_of, judged, plan_of

SNAPKV = {"policy": "snapkv", "budget_tokens": 40}


def report(candidate: dict[str, Any], *, moved: float | None, lost: int = 0) -> Report:
    """A gate on the reference engine whose engine counted so many tokens evicted while it answered the tasks."""
    plan = plan_of(candidate)
    assert plan.candidate.engine == "reference"
    exercise = Exercise(suite="accuracy", mode="cold", counter=EVICTED_TOKENS, moved=moved, expected="any")
    arms = {
        role: replace(arm, effective=None if role == "candidate" else EffectiveConfig(cache_dtype="auto"))
        for role, arm in arms_of(plan, lost=lost).items()
    }
    return judged(plan, {**arms, "candidate": replace(arms["candidate"], exercises=(exercise,))})


def metrics(found: Report) -> set[str]:
    return {finding.metric for finding in found.findings}


def test_accuracy_on_items_that_lost_nothing_does_not_apply_and_the_report_says_why() -> None:
    found = report({"eviction": SNAPKV}, moved=0)
    assert metrics(found) == {"decode_kl"}
    assert any("accuracy change does not apply" in note and "evicted nothing" in note for note in found.notes)


@pytest.mark.parametrize("moved", [12.0, None])
def test_accuracy_on_items_that_lost_tokens_counts(moved: float | None) -> None:
    found = report({"eviction": SNAPKV}, moved=moved, lost=40)
    assert "accuracy" in metrics(found)
    assert found.verdict is Verdict.FAIL


def test_what_a_quantization_beside_it_does_to_the_items_counts() -> None:
    found = report({"eviction": SNAPKV, "quantization": {"scheme": "int8"}}, moved=0)
    assert metrics(found) == {"decode_kl", "accuracy"}


def test_top_k_evicts_nothing_wherever_it_is_at_work() -> None:
    assert "accuracy" in metrics(report({"eviction": {"policy": "topk", "k": 8}}, moved=0))
