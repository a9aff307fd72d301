"""Rules that speak of some context lengths alone, and the curve over all of them."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.basis import Basis
from gatekeeper.domain.delta import deltas_between
from gatekeeper.domain.foresight import foresee
from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Measurement, Mode, Role, TokenTrace
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.sample import Parts
from gatekeeper.domain.sentence import demand
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Delta, Finding, Outcome, Report, Verdict
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


KL = {"metric": "decode_kl", "at_most": 0.05, "reason": "r"}
CONTEXTS, DOCUMENTS = (64, 256, 1024), 12
SCORING = Suite.model_validate(
    {"name": "s", "description": "", "probes": [
        {"probe": "fidelity", "documents": DOCUMENTS, "context_tokens": CONTEXTS, "decode_tokens": 3}]}
)  # fmt: skip


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
        KL | {"context": [9, 9]},
        KL | {"context": [64, 128], "decode_position": [0, 2]},
    ],
)
def test_context_belongs_to_metrics_that_know_lengths_and_to_all_of_their_items(
    rule: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match="context"):
        Rule.model_validate(rule)


def scored(
    shifts: Mapping[int, float], *, documents: int = DOCUMENTS, mode: Mode = "cold"
) -> tuple[TokenTrace, ...]:
    """Documents after each length of context, whose distribution has moved by about the shift of that length."""
    return tuple(
        TokenTrace(
            suite="fidelity", mode=mode, item_id=f"d{number:02}/{length}", cluster=f"d{number:02}",
            context_tokens=length, token_ids=[1, 2, 3], token_logprobs=[-0.3 - moved] * 3, top_ids=[[1, 2]] * 3,
            top_logprobs=[[-0.3 - moved, -1.6 + moved]] * 3, batch=number * 4 // documents,
        )
        for number in range(documents)
        for length, shift in shifts.items()
        for moved in (shift * (0.8 + 0.4 * number / documents),)
    )  # fmt: skip


def judged_at(
    shifts: Mapping[int, float], *rules: dict[str, object], drop: str = "", noise: float = 0.0
) -> Report:
    """Judge a candidate that differs by these shifts; `drop`: an item that it lacks; `noise`: the control's shift."""
    plan = plan_of(rules=[KL, *rules]).model_copy(update={"suite": SCORING})
    traces: dict[Role, tuple[TokenTrace, ...]] = {
        "baseline": scored(dict.fromkeys(shifts, 0.0)),
        "control": scored(dict.fromkeys(shifts, noise)),
        "candidate": tuple(trace for trace in scored(shifts) if trace.item_id != drop),
    }
    return judge(plan, {role: replace(arm, traces=traces[role]) for role, arm in arms_of(plan).items()})


def kl_of(report: Report, group: str = "all") -> Delta:
    (delta,) = (d for d in report.deltas if (d.metric, d.group) == ("decode_kl", group))
    return delta


def test_damage_past_some_context_shows_in_the_curve_and_fails_the_rule_on_that_length() -> None:
    past_context = {64: 0.0, 256: 0.0, 1024: 0.45}
    report = judged_at(past_context, KL | {"context": [1000, 1100]}, KL | {"context": [0, 1000]})
    outcomes = {finding.group: finding.outcome for finding in report.findings}
    assert outcomes["context 1000-1100"] is Outcome.REGRESSED
    assert outcomes["context 0-1000"] is Outcome.PASSED
    assert outcomes["all"] is not Outcome.REGRESSED  # what the mean over all lengths hides
    assert report.verdict is Verdict.FAIL
    assert "context 1000-1100" in report.sentence
    short, middle, long = kl_of(report).context_curve
    assert (short.context_tokens, middle.context_tokens, long.context_tokens) == CONTEXTS
    assert short.estimate == middle.estimate == 0
    assert long.lower is not None
    assert long.lower > 0.05
    assert long.estimate == pytest.approx(kl_of(report, "context 1000-1100").estimate)


def test_the_pooled_sample_is_over_all_lengths_and_its_evidence_is_documents() -> None:
    pooled = kl_of(judged_at(dict.fromkeys(CONTEXTS, 0.1)))
    assert (pooled.n, pooled.clusters, pooled.planned) == (3 * DOCUMENTS, DOCUMENTS, 3 * DOCUMENTS)
    assert pooled.estimate == pytest.approx(np.mean([point.estimate for point in pooled.context_curve]))
    once = kl_of(judged_at({64: 0.1}))
    assert (once.lower, once.upper) == pytest.approx(
        (pooled.lower, pooled.upper)
    )  # thrice the same says nothing more


def test_the_control_has_the_noise_floor_at_every_length() -> None:
    report = judged_at(dict.fromkeys(CONTEXTS, 0.1), noise=0.05)
    (floor,) = (delta for delta in report.noise.deltas if (delta.metric, delta.group) == ("decode_kl", "all"))
    assert [point.context_tokens for point in floor.context_curve] == list(CONTEXTS)
    assert all(point.estimate > 0 for point in floor.context_curve)


def test_one_length_is_no_curve_and_neither_are_lengths_of_different_documents() -> None:
    assert kl_of(judged_at({64: 0.1})).context_curve == ()
    baseline, candidate = (
        tuple(
            replace(trace, context_tokens=127 + number % 3)
            for number, trace in enumerate(scored({64: shift}))
        )
        for shift in (0.0, 0.1)
    )
    plan = plan_of(rules=[KL])
    arms = {
        role: replace(arm, traces=candidate if role == "candidate" else baseline)
        for role, arm in arms_of(plan).items()
    }
    assert kl_of(judge(plan, arms)).context_curve == ()


def test_a_document_that_is_missing_at_one_length_is_missing_from_the_sample_and_in_no_point() -> None:
    report = judged_at(dict.fromkeys(CONTEXTS, 0.1), KL | {"context": [0, 100]}, drop="d03/1024")
    outcomes = {finding.group: finding.outcome for finding in report.findings}
    assert outcomes == {"all": Outcome.MISSING, "context 0-100": Outcome.PASSED}
    assert kl_of(report).missing == 1
    assert {point.documents for point in kl_of(report).context_curve} == {DOCUMENTS - 1}


def test_a_length_that_no_document_has_is_missing_and_said_beforehand() -> None:
    lacking = KL | {"context": [5000, 6000]}
    report = judged_at(dict.fromkeys(CONTEXTS, 0.0), lacking)
    assert {finding.group: finding.outcome for finding in report.findings}[
        "context 5000-6000"
    ] is Outcome.MISSING
    plan = plan_of(rules=[lacking, KL | {"context": [1000, 1100]}]).model_copy(update={"suite": SCORING})
    absent, present = foresee(plan)
    assert absent.outlook == "undecidable"
    assert absent.sentence == "in cold mode the suite scores after 64, 256, 1024 tokens of context only"
    assert "over 12 documents" in present.sentence


DRIFT = {"metric": "kl_context_drift", "at_most": 0.02, "reason": "r"}


@pytest.mark.parametrize(
    ("shifts", "outcome"),
    [
        ((0.1, 0.1, 0.1), Outcome.PASSED),
        ((0.0, 0.0, 0.45), Outcome.REGRESSED),
        ((0.4, 0.3, 0.2), Outcome.PASSED),
    ],
)
def test_damage_that_grows_with_the_context_drifts_and_damage_at_every_length_does_not(
    shifts: tuple[float, ...], outcome: Outcome
) -> None:
    report = judged_at(dict(zip(CONTEXTS, shifts, strict=True)), DRIFT, drop="d03/256")
    (finding,) = (found for found in report.findings if found.metric == "kl_context_drift")
    assert (finding.outcome, finding.mode) == (outcome, "cold")
    assert finding.delta is not None
    assert (finding.delta.n, finding.delta.missing) == (
        DOCUMENTS,
        0,
    )  # of the lengths between it says nothing


def test_a_document_without_its_shortest_context_has_no_drift() -> None:
    report = judged_at(dict.fromkeys(CONTEXTS, 0.1), DRIFT, drop="d03/64")
    (finding,) = (found for found in report.findings if found.metric == "kl_context_drift")
    assert finding.outcome is Outcome.MISSING
    assert finding.delta is not None
    assert (finding.delta.n, finding.delta.missing) == (DOCUMENTS - 1, 1)


def test_with_one_length_of_context_a_rule_on_the_drift_over_it_is_idle() -> None:
    plan = plan_of(rules=[KL, DRIFT])
    assert {finding.metric for finding in judge(plan, arms_of(plan)).findings} == {"decode_kl"}
    assert foresee(plan)[1].outlook == "idle"
    assert foresee(plan.model_copy(update={"suite": SCORING}))[1].outlook == "decidable"


def test_no_look_comes_before_enough_documents_however_many_lengths_they_have() -> None:
    """Sixteen documents, not sixteen documents' lengths."""
    plan = plan_of(rules=[KL]).model_copy(update={"suite": SCORING})
    arms = {
        role: replace(arm, traces=scored(dict.fromkeys(CONTEXTS, 0.1 * (role == "candidate")), documents=32))
        for role, arm in arms_of(plan).items()
    }
    assert (
        "look 3 of 3" in kl_of(judge(plan, arms)).method
    )  # of four batches of eight, the first is too small


@settings(max_examples=10, deadline=None)
@given(shifts=st.lists(st.floats(0, 0.3), min_size=2, max_size=5), seed=st.randoms(use_true_random=False))
def test_the_order_of_traces_changes_no_curve_and_points_are_the_groups_estimates(
    shifts: list[float], seed: Random
) -> None:
    lengths = {2**i: shift for i, shift in enumerate(shifts, start=4)}
    moved = list(scored(lengths))
    seed.shuffle(moved)
    arm = arms_of(plan_of())["baseline"]
    deltas = deltas_between(
        replace(arm, traces=scored(dict.fromkeys(lengths, 0.0)), measurements=()),
        replace(arm, traces=tuple(moved), measurements=()),
        Basis(confidence=0.95),
        parts=Parts(contexts=[(length, length + 1) for length in lengths]),
    )
    found = {delta.group: delta for delta in deltas if delta.metric == "decode_kl"}
    assert len(found["all"].context_curve) == len(lengths)
    for point in found["all"].context_curve:
        group = found[f"context {point.context_tokens}-{point.context_tokens + 1}"]
        expected = (group.estimate, group.lower, group.upper)
        assert (point.estimate, point.lower, point.upper) == pytest.approx(expected)
