"""Rules that speak of items of some context lengths alone."""

from dataclasses import replace

import pytest

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.foresight import foresee
from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Measurement, Role
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.sentence import demand
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Finding, Outcome, Verdict
from tests.unit.domain.test_judge import arms_of, plan_of

LENGTHS, PER_LENGTH = (256, 1024), 60
SUITE = Suite.model_validate(
    {"name": "s", "description": "", "probes": [
        {"probe": "retrieval", "families": ["needle", "copy"], "context_tokens": LENGTHS, "items_per_cell": 30}]}
)  # fmt: skip
SHORT, LONG = (
    {"metric": "retrieval_accuracy", "max_drop": 0.2, "context": bucket, "reason": "r"}
    for bucket in ([200, 300], [900, 1100])
)


def retrieved(wrong_from: int) -> tuple[Measurement, ...]:
    """Every item is right up to a context length; lengths fall a little short of what was asked for."""
    return tuple(
        Measurement(
            suite="retrieval", mode="cold", item_id=f"needle/{length}/{n:02}", cluster="needle", metric="retrieved",
            value=float(length < wrong_from), context_tokens=length - 3,
        )
        for length in LENGTHS
        for n in range(PER_LENGTH)
    )  # fmt: skip


def with_retrieval(plan: Plan, wrong_from: int) -> dict[Role, ArmRecord]:
    return {
        role: replace(
            arm,
            measurements=(*arm.measurements, *retrieved(wrong_from if role == "candidate" else 10**6)),
        )
        for role, arm in arms_of(plan).items()
    }


def by_group(plan: Plan, wrong_from: int) -> tuple[Verdict, dict[str, Finding]]:
    report = judge(plan, with_retrieval(plan, wrong_from))
    return report.verdict, {finding.group: finding for finding in report.findings}


def test_damage_only_beyond_some_length_fails_there_and_passes_below() -> None:
    verdict, findings = by_group(plan_of(rules=[SHORT, LONG]), wrong_from=1000)
    assert verdict is Verdict.FAIL
    assert findings["context 200-300"].outcome is Outcome.PASSED
    assert findings["context 900-1100"].outcome is Outcome.REGRESSED


def test_a_length_that_no_item_has_is_missing() -> None:
    verdict, findings = by_group(plan_of(rules=[LONG | {"context": [5000, 6000]}]), wrong_from=10**6)
    assert verdict is Verdict.INVALID
    assert findings["context 5000-6000"].outcome is Outcome.MISSING


def test_before_a_run_it_is_said_which_lengths_the_suite_lacks() -> None:
    plan = plan_of(rules=[LONG, SHORT | {"context": [5000, 6000]}]).model_copy(update={"suite": SUITE})
    reached, lacking = foresee(plan)
    assert "60 items" in reached.sentence
    assert (lacking.outlook, "no item of context 5000-6000" in lacking.sentence) == ("undecidable", True)


def test_the_sentence_of_the_rule_names_the_lengths() -> None:
    assert "of items of 900 to 1099 tokens" in demand(Rule.model_validate(LONG))


@pytest.mark.parametrize(
    "rule",
    [
        LONG | {"metric": "accuracy"},
        LONG | {"context": [9, 9]},
        LONG | {"group": "needle"},
    ],
)
def test_context_belongs_to_retrieval_metrics_of_all_items(rule: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="context is"):
        Rule.model_validate(rule)
