"""What a verdict advises: nothing that the findings, the waivers or the engine make untrue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gatekeeper.domain.meaning import Meaning, meaning_of
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.verdict import Delta, Finding, Outcome, Verdict
from gatekeeper.domain.waiver import Waiver

ACCURACY = Rule(metric="accuracy", max_drop=0.05, reason="r")
KL = Rule(metric="decode_kl", at_most=0.05, reason="r")
NOISY = Rule(metric="decode_nll", at_most_noise_multiple=3, limit_floor=0.01, reason="r")
SPEED = Rule(metric="throughput_ratio", at_least=0.9, reason="r")
GAIN = Rule(metric="kv_capacity_ratio", at_least=1.8, reason="r")


def found(
    rule: Rule, outcome: Outcome, *, detail: str = "as it is", measured: bool = True, **more: Any
) -> Finding:
    figures: dict[str, Any] = {
        "metric": rule.metric, "suite": "s", "mode": "cold", "unit": "x", "n": 16, "clusters": 16, "baseline": None,
        "candidate": None, "estimate": 0.04, "lower": 0.03, "upper": 0.06, "confidence": 0.95, "method": "m",
    }  # fmt: skip
    delta = Delta(**(figures | more)) if measured else None
    return Finding(
        outcome=outcome,
        metric=rule.metric,
        mode="cold",
        rule=rule,
        bound=rule.bound,
        delta=delta,
        detail=detail,
    )


def waiver(day: int) -> Waiver:
    granted, expires = datetime(2026, 11, 30, tzinfo=UTC), datetime(2026, 12, day, tzinfo=UTC)
    return Waiver(
        id=day, metric="accuracy", owner="Ada", reason="room first", granted_at=granted, expires_at=expires
    )


def meaning(
    verdict: Verdict, *findings: Finding, waivers: tuple[Waiver, ...] = (), engine: str = "vllm"
) -> Meaning:
    return meaning_of(verdict, findings=findings, waivers=waivers, engine=engine)


def undecided(*findings: Finding) -> Meaning:
    return meaning(Verdict.INCONCLUSIVE, *findings)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_pass_opens_the_gate_and_only_pass_says_roll_it_out(verdict: Verdict) -> None:
    said = meaning(verdict)
    assert (said.gate == "Gate open") is (verdict is Verdict.PASS)
    assert ("Roll it out" in said.advice) is (verdict is Verdict.PASS)


def test_a_pass_that_rests_on_waivers_says_so_and_until_when() -> None:
    one, two = (
        meaning(Verdict.PASS, waivers=given).advice for given in ((waiver(24),), (waiver(24), waiver(9)))
    )
    assert one.startswith(
        "Every blocking rule was shown to hold or is waived, until 2026-12-24. Roll it out before"
    )
    assert "until 2026-12-09 at the earliest" in two


@pytest.mark.parametrize("waivers", [(), (waiver(24),)])
def test_a_pass_on_the_reference_engine_offers_neither_rollout_nor_promotion(
    waivers: tuple[Waiver, ...],
) -> None:
    advice = meaning(Verdict.PASS, waivers=waivers, engine="reference").advice
    assert "Roll it out" not in advice
    assert "promote" not in advice
    assert ("The model survives the method." in advice) is (not waivers)
    assert advice.endswith("Nothing here can be rolled out, because the reference engine serves nobody.")


def test_a_regression_is_named_only_where_a_blocking_rule_has_one() -> None:
    lost = meaning(Verdict.FAIL, found(KL, Outcome.REGRESSED))
    assert lost.advice.startswith("At least one rule proved a regression.")
    assert (lost.decided, lost.margins_help, lost.waivers_help) == (True, True, True)
    warned = found(SPEED.model_copy(update={"severity": "warn"}), Outcome.REGRESSED)
    for findings in ((), (found(KL, Outcome.PASSED), warned), (found(KL, Outcome.INCONCLUSIVE),)):
        broke = meaning(Verdict.FAIL, *findings)
        assert broke.advice.startswith("No rule decided this: the candidate broke down")
        assert (broke.decided, broke.margins_help, broke.waivers_help) == (False, False, False)


def test_values_that_are_no_numbers_are_neither_waived_nor_judged_by_other_margins() -> None:
    said = meaning(
        Verdict.FAIL, found(KL, Outcome.REGRESSED), found(ACCURACY, Outcome.REGRESSED, measured=False)
    )
    assert said.advice.startswith("The candidate has items without a finite value")
    assert (said.margins_help, said.waivers_help) == (False, False)


def test_a_change_that_buys_too_little_is_not_told_to_be_gentler() -> None:
    assert "buys more" in meaning(Verdict.FAIL, found(GAIN, Outcome.REGRESSED)).advice
    both = meaning(Verdict.FAIL, found(GAIN, Outcome.REGRESSED), found(KL, Outcome.REGRESSED))
    assert "a gentler change" in both.advice


def test_an_undecided_run_says_what_each_rule_lacks() -> None:
    said = undecided(
        found(ACCURACY, Outcome.INCONCLUSIVE, more_items=310),
        found(SPEED, Outcome.INCONCLUSIVE),
        found(KL, Outcome.INCONCLUSIVE),
        found(KL, Outcome.PASSED),
    )
    assert said.advice == (
        "The evidence is sound but does not decide. Accuracy change: about 310 more items would decide. "
        "Throughput: more rounds or launches are needed. Decode KL: more items may not decide."
    )
    assert (said.decided, said.margins_help, said.waivers_help) == (True, True, True)


def test_what_no_margin_decides_is_not_sent_to_other_margins() -> None:
    words = "no noise floor was measured, so the limit is unknown"
    for finding, lack in (
        (found(NOISY, Outcome.INCONCLUSIVE, detail=words), words),
        (found(SPEED, Outcome.INCONCLUSIVE, detail=words, lower=None, upper=None), words),
        (
            found(KL, Outcome.INCONCLUSIVE, clusters=4, upper=0.045),
            "fewer than 8 documents pass nothing, 4 were",
        ),
    ):
        said = undecided(finding)
        assert lack in said.advice
        assert (said.margins_help, said.waivers_help) == (False, True)


def test_rules_that_lack_the_same_are_named_together_and_many_are_not_all_named() -> None:
    tasks = [
        found(ACCURACY, Outcome.INCONCLUSIVE, more_items=items).model_copy(update={"group": f"`task{items}`"})
        for items in (7, 7, 7, 7, 8, 9, 10)
    ]
    said = undecided(*tasks).advice
    assert (
        "Accuracy change ('task7'), accuracy change ('task7'), accuracy change ('task7') and 1 more: about 7"
        in said
    )
    assert "task9" in said
    assert "task10" not in said
    assert said.endswith("The findings say what the others lack.")
    assert "`" not in said
