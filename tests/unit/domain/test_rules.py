"""Every form and scope of a rule, over synthetic arms."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Measurement, TokenTrace
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Finding, Outcome, Report, Verdict
from tests.unit.domain.test_judge import arms_of, judged, plan_of, traces

KL = {"metric": "decode_kl", "at_most": 0.05, "reason": "r"}


def rule(**fields: Any) -> dict[str, Any]:
    return {"reason": "r"} | fields


def answers(lost: Mapping[str, int], items: int = 100, wrong_share: int = 4) -> tuple[Measurement, ...]:
    """Items of the tasks in `lost`, one of `wrong_share` wrong in both arms; so many of the others lost."""
    return tuple(
        Measurement(
            suite="accuracy", mode="cold", item_id=f"{task}/{i}", cluster=task, metric="correct",
            value=float(i % wrong_share != 0 and not (i % wrong_share == 1 and i // wrong_share < losses)),
        )
        for task, losses in lost.items()
        for i in range(items)
    )  # fmt: skip


def scores(values: Sequence[float], task: str = "t") -> tuple[Measurement, ...]:
    return tuple(
        Measurement(suite="accuracy", mode="cold", item_id=f"{task}/{i}", cluster=task,
                    metric="right_choice_probability", value=value)
        for i, value in enumerate(values)
    )  # fmt: skip


def test_a_mode_with_fewer_documents_than_the_cold_cache_lacks_none() -> None:
    plan = plan_of(rules=[{"metric": "decode_kl", "at_most": 0.05, "mode": "prefill", "reason": "r"}])
    probe = {
        "probe": "modes",
        "modes": ["prefill"],
        "documents": 8,
        "context_tokens": 130,
        "decode_tokens": 3,
    }
    suite = plan.suite.model_dump() | {"probes": [*plan.suite.model_dump()["probes"], probe]}
    extra = replace(traces(0.0)[0], item_id="d9", cluster="d9")
    arms = {
        role: replace(arm, traces=(*arm.traces, extra, *traces(0.0, "prefill")))
        for role, arm in arms_of(plan).items()
    }
    report = judge(plan.model_copy(update={"suite": Suite.model_validate(suite)}), arms)
    assert report.verdict is Verdict.PASS, report.sentence


def drifting(shifts: Sequence[float], documents: int = 8) -> tuple[TokenTrace, ...]:
    """Documents whose distribution moves by about `shifts[i]` at decoded token i, differently in each."""
    made = []
    for number in range(documents):
        moved = [shift * (0.5 + number / documents) for shift in shifts]
        made.append(
            TokenTrace(
                suite="fidelity", mode="cold", item_id=f"d{number}", cluster=f"d{number}",
                token_ids=[1] * len(shifts), token_logprobs=[-0.3 - by for by in moved],
                top_ids=[[1, 2]] * len(shifts), top_logprobs=[[-0.3 - by, -1.6 + by] for by in moved],
            )
        )  # fmt: skip
    return tuple(made)


def judged_by(rules: Sequence[Mapping[str, Any]], changed: Mapping[str, Mapping[str, Any]]) -> Report:
    """The report on arms that are equal but for `changed`, by role the fields of the arm."""
    plan = plan_of(rules=rules)
    arms = arms_of(plan)
    return judged(plan, {role: replace(arm, **changed.get(role, {})) for role, arm in arms.items()})


def by_answers(rules: Sequence[Mapping[str, Any]], lost: Mapping[str, int], **more: Any) -> Report:
    still = answers(dict.fromkeys(lost, 0), **more)
    return judged_by(
        rules,
        {
            "baseline": {"measurements": still},
            "control": {"measurements": still},
            "candidate": {"measurements": answers(lost, **more)},
        },
    )


def outcomes_of(report: Report) -> dict[tuple[str, str], Outcome]:
    return {(finding.metric, finding.group): finding.outcome for finding in report.findings}


# --- relative to the baseline ----------------------------------------------------------------------------------------


KEPT = rule(metric="accuracy", at_least_of_baseline=0.97)


@pytest.mark.parametrize(
    ("lost", "verdict"), [(0, Verdict.PASS), (10, Verdict.PASS), (4, Verdict.PASS), (40, Verdict.FAIL)]
)
def test_a_share_of_the_baseline_must_be_kept(lost: int, verdict: Verdict) -> None:
    """600 of 800 are right, so three percent of them are 18; a proven loss that is shown to be smaller passes."""
    report = by_answers([KEPT], {"t": lost}, items=800)
    (finding,) = report.findings
    assert finding.delta is not None
    assert finding.delta.kept == pytest.approx(1 - lost / 600)
    assert finding.bound == pytest.approx(-0.03 * 0.75)
    assert report.verdict is verdict
    assert verdict is Verdict.PASS or "may leave less than 97% of the baseline" in report.sentence


def test_too_few_items_show_neither_a_loss_nor_that_enough_is_kept() -> None:
    report = by_answers([KEPT], {"t": 2})
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "keeps 97.3% of the baseline, at least 9" in report.sentence
    assert "more items would decide" in report.sentence


def test_the_margin_grows_with_the_baselines_accuracy() -> None:
    """Of 1,000 items 12 are lost: 1.3 % of 900 right ones, 2.4 % of 500."""
    for wrong_share, verdict in ((10, Verdict.PASS), (2, Verdict.FAIL)):
        report = by_answers([KEPT], {"t": 12}, items=1000, wrong_share=wrong_share)
        assert report.verdict is verdict


def test_a_baseline_without_right_answers_keeps_nothing() -> None:
    wrong = tuple(replace(m, value=0.0) for m in answers({"t": 0}))
    same = {role: {"measurements": wrong} for role in ("baseline", "control", "candidate")}
    report = judged_by([rule(metric="accuracy", at_least_of_baseline=0.9)], same)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "no right answer" in report.sentence


# --- relative to the noise -------------------------------------------------------------------------------------------

NOISE = rule(metric="decode_kl", at_most_noise_multiple=3, limit_floor=0.001)


def test_the_limit_is_a_multiple_of_what_two_launches_differ_by() -> None:
    noisy = {"control": {"traces": traces(0.3)}, "candidate": {"traces": traces(0.35)}}
    report = judged_by([NOISE], noisy)
    (finding,) = report.findings
    assert report.verdict is Verdict.PASS
    assert finding.bound == pytest.approx(3 * (report.noise.decode_kl or 0))
    assert "times the noise floor" in finding.detail
    quiet = judged_by([NOISE], {"candidate": {"traces": traces(0.35)}})
    assert (quiet.verdict, quiet.findings[0].bound) == (Verdict.FAIL, 0.001)


def test_without_noise_the_floor_of_the_limit_lets_small_changes_pass() -> None:
    assert judged_by([NOISE], {"candidate": {"traces": traces(0.01)}}).verdict is Verdict.PASS


def test_without_a_control_launch_the_limit_is_unknown() -> None:
    plan = plan_of(rules=[NOISE])
    arms = arms_of(plan)
    del arms["control"]
    report = judged(plan, arms)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "the limit is unknown" in report.sentence


# --- gain ------------------------------------------------------------------------------------------------------------


def test_a_change_that_does_not_buy_what_it_was_for_fails_saying_so() -> None:
    gain = rule(metric="kv_capacity_ratio", at_least=1.8)
    assert judged_by([KL, gain], {}).verdict is Verdict.PASS
    report = judged_by([KL, gain | {"at_least": 2.5}], {})
    assert report.verdict is Verdict.FAIL
    assert "KV capacity 2.00x is below the required 2.50x: the change does not buy what it was for" in (
        report.sentence
    )


def test_capacity_is_exact_and_so_takes_no_error_from_the_others() -> None:
    """Holm over one rule upholds p = 0.029, see test_judge; a capacity rule beside it changes nothing."""
    plan = plan_of(
        rules=[rule(metric="accuracy", max_drop=0.05), rule(metric="kv_capacity_ratio", at_least=1.8)]
    )
    assert judged(plan, arms_of(plan, lost=11, gained=3)).verdict is Verdict.FAIL


# --- the score of an item --------------------------------------------------------------------------------------------

SCORE = rule(metric="choice_probability", max_drop=0.02)


def by_scores(rules: Sequence[Mapping[str, Any]], drop: float, items: int = 200) -> Report:
    rng = np.random.default_rng(5)
    before = rng.uniform(0.3, 0.7, items)
    after = before - drop + rng.normal(0, 0.05, items)
    first, second = scores(before.tolist()), scores(after.tolist())
    return judged_by(
        rules,
        {
            "baseline": {"measurements": first},
            "control": {"measurements": first},
            "candidate": {"measurements": second},
        },
    )


@pytest.mark.parametrize(
    ("drop", "verdict"), [(0.0, Verdict.PASS), (0.02, Verdict.FAIL), (0.05, Verdict.FAIL)]
)
def test_the_probability_of_the_right_choice_has_its_own_rule(drop: float, verdict: Verdict) -> None:
    report = by_scores([SCORE], drop)
    assert report.verdict is verdict
    (finding,) = report.findings
    assert finding.delta is not None
    assert finding.delta.clusters == 200
    assert finding.delta.baseline is not None


def test_a_small_loss_of_probability_that_is_shown_to_be_small_passes() -> None:
    report = by_scores([SCORE], 0.008, items=1000)
    (finding,) = report.findings
    assert finding.delta is not None
    assert finding.delta.upper is not None
    assert finding.delta.upper < 0
    assert report.verdict is Verdict.PASS


# --- tasks -----------------------------------------------------------------------------------------------------------

POOLED = rule(metric="accuracy", max_drop=0.05)
EACH, WORST = (rule(metric="accuracy", group=group, max_drop=0.05) for group in ("each", "worst"))
SPREAD = {"a": 0, "b": 0, "c": 0, "d": 24}


def test_one_damaged_task_hides_in_the_mean_but_not_from_each_and_worst() -> None:
    assert by_answers([POOLED], {**SPREAD, "d": 8}, items=400).verdict is Verdict.PASS
    for scoped in (EACH, WORST):
        report = by_answers([scoped], {**SPREAD, "d": 24}, items=400)
        assert report.verdict is Verdict.FAIL
        assert "accuracy change (d)" in report.sentence


def test_each_task_is_a_finding_and_the_worst_stands_for_all() -> None:
    each = by_answers([EACH], SPREAD, items=400)
    assert outcomes_of(each) == {
        ("accuracy", task): Outcome.REGRESSED if task == "d" else Outcome.PASSED for task in SPREAD
    }
    (worst,) = by_answers([WORST], SPREAD, items=400).findings
    assert (worst.group, worst.outcome) == ("d", Outcome.REGRESSED)
    assert worst.detail.startswith("the worst of 4 tasks: ")


def test_a_named_task_is_judged_alone() -> None:
    named = rule(metric="accuracy", group="a", max_drop=0.05)
    assert by_answers([named], SPREAD, items=400).verdict is Verdict.PASS
    missing = by_answers([named | {"group": "e"}], SPREAD, items=400)
    assert (missing.verdict, missing.findings[0].outcome) == (Verdict.INVALID, Outcome.MISSING)


def test_a_task_that_the_candidate_lost_altogether_is_missing() -> None:
    report = judged_by(
        [EACH],
        {
            "baseline": {"measurements": answers({"a": 0, "b": 0})},
            "candidate": {"measurements": answers({"a": 0})},
        },
    )
    assert outcomes_of(report) == {("accuracy", "a"): Outcome.PASSED, ("accuracy", "b"): Outcome.MISSING}
    assert report.verdict is Verdict.INVALID


def test_tasks_share_the_error_of_fail() -> None:
    """Six lost against none is p = 0.016: a loss for one task, not for the worst of four."""
    assert by_answers([EACH], {"d": 6}).verdict is Verdict.FAIL
    for scoped in (EACH, WORST):
        report = by_answers([scoped], {"a": 0, "b": 0, "c": 0, "d": 6})
        assert report.verdict is Verdict.INCONCLUSIVE
    # Seven (p = 0.0078) are upheld among four.
    assert by_answers([WORST], {"a": 0, "b": 0, "c": 0, "d": 7}).verdict is Verdict.FAIL


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 20), min_size=1))
def test_each_and_worst_come_to_the_same_verdict(lost: dict[str, int]) -> None:
    assert by_answers([EACH], lost).verdict is by_answers([WORST], lost).verdict


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 20), min_size=1))
def test_a_rule_on_each_task_passes_exactly_if_every_task_passes_alone(lost: dict[str, int]) -> None:
    """Intersection-union: no correction. FAIL is corrected, so it never comes where no task fails alone."""
    alone = [by_answers([EACH | {"group": task}], lost).verdict for task in lost]
    joint = by_answers([EACH], lost).verdict
    assert (joint is Verdict.PASS) == (set(alone) == {Verdict.PASS})
    assert joint is not Verdict.FAIL or Verdict.FAIL in alone


# --- modes and decode positions --------------------------------------------------------------------------------------

LATE = {**KL, "decode_position": [4, 8], "at_most": 0.02}


def test_damage_late_in_the_decode_hides_in_the_mean_but_not_from_its_stretch() -> None:
    late = {
        "baseline": {"traces": drifting([0.0] * 8)},
        "control": {"traces": drifting([0.0] * 8)},
        "candidate": {"traces": drifting([0.0] * 6 + [0.35] * 2)},
    }
    assert judged_by([KL], late).verdict is Verdict.PASS
    report = judged_by([KL, LATE], late)
    assert outcomes_of(report) == {
        ("decode_kl", "all"): Outcome.PASSED, ("decode_kl", "tokens 4-8"): Outcome.REGRESSED,
    }  # fmt: skip
    assert "decode KL (tokens 4-8)" in report.sentence
    stretch = next(delta for delta in report.deltas if delta.group == "tokens 4-8")
    whole = next(delta for delta in report.deltas if delta.metric == "decode_kl" and delta.group == "all")
    assert stretch.estimate == pytest.approx(2 * whole.estimate)


def test_a_stretch_that_no_item_reaches_is_missing() -> None:
    report = judged_by([KL, LATE], {})
    assert outcomes_of(report)["decode_kl", "tokens 4-8"] is Outcome.MISSING
    assert report.verdict is Verdict.INVALID


def test_a_rule_on_the_warm_mode_applies_where_there_is_one() -> None:
    warm = {**KL, "mode": "warm"}
    cold_only = plan_of(rules=[KL, warm])
    report = judged(cold_only, arms_of(cold_only))
    assert (report.verdict, [finding.mode for finding in report.findings]) == (Verdict.PASS, ["cold"])
    cached = plan_of({"reuse": {"prefix_caching": True}}, rules=[KL, warm | {"at_most": 0.001}])
    arms = arms_of(cached)
    arms["candidate"] = replace(arms["candidate"], traces=(*traces(0), *traces(0.15, "warm")))
    modes = [(finding.mode, finding.bound, finding.outcome) for finding in judged(cached, arms).findings]
    assert modes == [
        ("cold", 0.05, Outcome.PASSED), ("warm", 0.05, Outcome.PASSED), ("warm", 0.001, Outcome.REGRESSED),
    ]  # fmt: skip


def test_a_policy_whose_blocking_rules_do_not_apply_passes_nothing() -> None:
    plan = plan_of(rules=[{**KL, "mode": "warm"}])
    report = judged(plan, arms_of(plan))
    assert report.verdict is Verdict.INVALID
    assert "no blocking rule of the policy applies to this change" in report.sentence


# --- minimum evidence ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("documents", "outcome"), [(7, Outcome.INCONCLUSIVE), (8, Outcome.PASSED)])
def test_fewer_than_eight_documents_pass_nothing(documents: int, outcome: Outcome) -> None:
    still, moved = drifting([0.0] * 4, documents), drifting([0.01] * 4, documents)
    few = {"baseline": {"traces": still}, "control": {"traces": still}, "candidate": {"traces": moved}}
    (finding,) = judged_by([KL], few).findings
    assert finding.outcome is outcome
    if outcome is Outcome.INCONCLUSIVE:
        assert "fewer than 8 documents pass nothing, 7 were measured" in finding.detail


def test_few_documents_can_still_show_harm() -> None:
    still, moved = drifting([0.0] * 4, 4), drifting([1.0] * 4, 4)
    few = {"baseline": {"traces": still}, "control": {"traces": still}, "candidate": {"traces": moved}}
    assert judged_by([KL], few).verdict is Verdict.FAIL


# --- what is stored --------------------------------------------------------------------------------------------------


def test_a_finding_of_an_earlier_version_still_loads() -> None:
    (finding,) = judged_by([KL], {}).findings
    document = finding.model_dump(mode="json")
    for key in ("group", "bound"):
        del document[key]
    for key in ("kept", "kept_lower"):
        del document["delta"][key]
    for key in (
        "group",
        "mode",
        "decode_position",
        "limit_floor",
        "at_least_of_baseline",
        "at_most_noise_multiple",
    ):
        del document["rule"][key]
    again = Finding.model_validate(document)
    assert (again.group, again.limit) == ("all", 0.05)


def test_the_first_rule_that_speaks_of_a_delta_gives_it_its_figures() -> None:
    plan: Plan = plan_of(rules=[KL, {**KL, "mode": "cold", "at_most": 0.001}])
    report = judged(plan, arms_of(plan, shift=0.2))
    listed = next(delta for delta in report.deltas if delta.metric == "decode_kl")
    assert [finding.delta == listed for finding in report.findings] == [True, False]
