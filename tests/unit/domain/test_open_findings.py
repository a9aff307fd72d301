"""What an undecided rule says: words that its figures bear out, and a number of items that is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.verdict import Finding, Outcome
from tests.unit.domain.test_judge import arms_of, judged, plan_of

Pair = tuple[float, float]
ACCURACY = {"metric": "accuracy", "max_drop": 0.05, "reason": "r"}
CHOICE = {"metric": "choice_probability", "max_drop": 0.05, "reason": "r"}


def found(rule: dict[str, Any], metric: str, pairs: Sequence[Pair], batches: Sequence[int] = ()) -> Finding:
    """The finding of a policy of one rule; a pair is what an item was worth in the baseline and the candidate."""
    plan = plan_of(rules=[rule])
    arms = arms_of(plan)
    for role, index in (("baseline", 0), ("control", 0), ("candidate", 1)):
        rows = tuple(
            Measurement.of(
                suite="accuracy", mode="cold", item_id=f"t/{number:05d}", cluster="t", metric=metric,
                value=pair[index], batch=batches[number] if batches else 0,
            )
            for number, pair in enumerate(pairs)
        )  # fmt: skip
        arms[role] = replace(arms[role], measurements=rows)  # type: ignore[index]
    (finding,) = judged(plan, arms).findings
    return finding


def right_or_wrong(*, lost: int, n: int, batches: Sequence[int] = ()) -> Finding:
    pairs = [(1.0, 0.0)] * lost + [(1.0, 1.0)] * (n - lost)
    return found(ACCURACY, "correct", pairs, batches)


def test_bounds_wholly_beyond_a_limit_do_not_straddle_it() -> None:
    """Four of ten lost: the score bounds are below the margin, and the exact p-value is 1/16."""
    finding = right_or_wrong(lost=4, n=10)
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert (
        "is a loss, margin -5.0 points, but not proven so (p = 0.062); about 6 more items" in finding.detail
    )
    assert finding.delta is not None
    more = finding.delta.more_items
    assert more is not None
    assert right_or_wrong(lost=round(0.4 * (10 + more)), n=10 + more).outcome is Outcome.REGRESSED


def test_a_loss_smaller_than_the_margin_is_not_said_to_be_beyond_it() -> None:
    finding = right_or_wrong(lost=7, n=200)
    assert finding.outcome is Outcome.REGRESSED
    assert "-3.5 points" in finding.detail
    assert "is a loss, margin -5.0 points" in finding.detail


@pytest.mark.parametrize("lost", [4, 5])
def test_the_items_asked_for_answer_the_bounds_of_the_last_look(lost: int) -> None:
    """With twelve looks the bounds are wider than with one, which these items would have decided."""
    finding = right_or_wrong(lost=lost, n=200, batches=[number % 12 for number in range(200)])
    assert finding.delta is not None
    is_open = finding.outcome is Outcome.INCONCLUSIVE
    assert (finding.delta.more_items != 0) == is_open
    assert ("more items would decide" in finding.detail) == is_open


def test_a_first_batch_that_came_to_nothing_is_a_finding_and_no_crash() -> None:
    batches = [number // 20 for number in range(60)]
    pairs = [(0.5, float("nan")) if batch == 0 else (0.5, 0.5) for batch in batches]
    finding = found(CHOICE, "right_choice_probability", pairs, batches)
    assert finding.outcome is Outcome.REGRESSED
    assert "no finite value for 20 items" in finding.detail


@pytest.mark.parametrize(("slots", "words"), [(1022, "1.996x beyond 2.000x"), (1000, "1.95x beyond 2.00x")])
def test_a_figure_that_breaks_a_limit_does_not_read_like_it(slots: int, words: str) -> None:
    plan = plan_of(rules=[{"metric": "kv_capacity_ratio", "at_least": 2.0, "reason": "r"}, ACCURACY])
    arms = arms_of(plan)
    effective = replace(arms["candidate"].effective, kv_cache_tokens=slots)  # type: ignore[type-var]
    report = judged(plan, {**arms, "candidate": replace(arms["candidate"], effective=effective)})
    assert words in report.findings[0].detail
    assert words.replace("beyond", "is below the required") in report.sentence
