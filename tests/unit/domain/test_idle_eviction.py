"""Items from which nothing was evicted are no evidence of a policy that evicts."""

from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.domain.foresight import foresee
from gatekeeper.domain.measurement import EVICTED_TOKENS, EffectiveConfig, Exercise
from gatekeeper.domain.scope import says_nothing, silences
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Report, Verdict
from tests.unit.domain.test_judge import arms_of, judged, plan_of

SNAPKV = {"policy": "snapkv", "budget_tokens": 40}
PREFILL = Suite.model_validate(
    {
        "name": "s", "description": "",
        "probes": [
            {"probe": "modes", "modes": ["prefill"], "documents": 8, "context_tokens": 200, "decode_tokens": 16}
        ],
    }
)  # fmt: skip


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


def test_what_another_type_of_computation_beside_it_does_to_the_items_counts() -> None:
    plan = plan_of({"eviction": SNAPKV})
    config = plan.candidate.config.model_copy(update={"engine_args": {"dtype": "bfloat16"}})
    candidate = plan.candidate.model_copy(update={"config": config})
    exercise = Exercise(suite="accuracy", mode="cold", counter=EVICTED_TOKENS, moved=0, expected="any")
    record = replace(arms_of(plan)["candidate"], exercises=(exercise,))
    assert says_nothing(plan, record, suite="accuracy", mode="cold")
    both = plan.model_copy(update={"candidate": candidate})
    assert says_nothing(both, record, suite="accuracy", mode="cold") is None


def test_top_k_evicts_nothing_wherever_it_is_at_work() -> None:
    assert "accuracy" in metrics(report({"eviction": {"policy": "topk", "k": 8}}, moved=0))


@pytest.mark.parametrize(
    ("candidate", "counts"),
    [
        ({"eviction": SNAPKV}, False),
        ({"eviction": {"policy": "streaming_llm", "window": 8}}, True),
        ({"eviction": SNAPKV, "quantization": {"scheme": "int8"}}, True),
    ],
)
def test_tokens_read_before_the_prompt_is_compressed_are_no_evidence(
    candidate: dict[str, Any], counts: bool
) -> None:
    plan = plan_of(candidate)
    record = arms_of(plan)["candidate"]
    reason = says_nothing(plan, record, suite="fidelity", mode="prefill")
    assert (reason is None) == counts
    assert says_nothing(plan, record, suite="fidelity", mode="cold") is None


def test_a_rule_that_says_nothing_in_one_mode_is_noted_with_it() -> None:
    plan = plan_of({"eviction": SNAPKV}).model_copy(update={"suite": PREFILL})
    notes = list(silences(plan, arms_of(plan)["candidate"]))
    assert [note for note in notes if "in prefill mode" in note and note.startswith("decode KL")]


def test_a_rule_that_will_say_nothing_is_idle_beforehand() -> None:
    rule = {"metric": "decode_kl", "at_most": 0.05, "mode": "prefill", "reason": "r"}
    plans = (
        plan_of(candidate, [rule])
        for candidate in ({"eviction": SNAPKV}, {"quantization": {"scheme": "int8"}})
    )
    snapkv, int8 = (foresee(plan.model_copy(update={"suite": PREFILL}))[0] for plan in plans)
    assert (snapkv.outlook, int8.outlook) == ("idle", "decidable")
    assert "compresses when it is over" in snapkv.sentence
