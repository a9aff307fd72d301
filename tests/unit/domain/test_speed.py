"""Rounds: their names, their pairs, and what the judge makes of engines that took turns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.domain import speed
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.interim import speed_decided
from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Measurement, Mode, Role
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.speed import COMPANION, SUITE, Round, round_of
from gatekeeper.domain.speed_estimate import Question, SpeedEstimate, in_turns
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Finding, Outcome, Report, Verdict
from tests.fakes.engine import fake_plan
from tests.unit.domain.test_judge import traces

THROUGHPUT = "output_throughput_tok_s"
KL = {"metric": "decode_kl", "at_most": 0.05, "reason": "r"}
SPEED = {"metric": "throughput_ratio", "at_least": 0.9, "severity": "warn", "reason": "r"}


def measured(
    which: Round, value: float, *, suite: str = SUITE, length: int = 128, mode: Mode = "cold", metric: str = THROUGHPUT
) -> Measurement:  # fmt: skip
    return Measurement(
        suite=suite, mode=mode, item_id=which.item_id(length), cluster=f"launch-{which.launch}", metric=metric,
        value=value,
    )  # fmt: skip


def turns(
    ratios: Sequence[Sequence[float]], *, failed: int = 0, failed_companion: int = 0, **place: Any
) -> tuple[Measurement, ...]:
    """Rounds of pairs of launches, the companion's throughput drifting; `ratios[l][r]`: own / companion's."""
    rows = []
    for launch, pair in enumerate(ratios, start=1):
        for number, ratio in enumerate(pair, start=1):
            which, drift = Round(launch=launch, number=number), 100.0 + 17 * launch + 5 * number
            rows += [
                measured(which, drift * ratio, **place),
                measured(which, drift, suite=COMPANION, **place),
            ]
    for count, suite in ((failed, SUITE), (failed_companion, COMPANION)):
        rows.append(measured(Round(launch=1, number=1), count, suite=suite, metric="failed_requests"))
    return tuple(rows)


def plan_of(*rules: Mapping[str, object], launches: int = 3, **probe: object) -> Plan:
    plan = fake_plan()
    fidelity = {"probe": "fidelity", "documents": 8, "context_tokens": 64, "decode_tokens": 16}
    load = {"probe": "performance", "prompts": 4, "input_tokens": 128, "output_tokens": 8, "rounds": 4}
    probes = [fidelity, load | {"turns": {"launches": launches}} | probe]
    suite = Suite.model_validate({"name": "s", "description": "", "probes": probes})
    policy = Policy.model_validate({"name": "p", "rules": list(rules) or [KL, SPEED]})
    return plan.model_copy(update={"suite": suite, "policy": policy})


def arms_of(
    plan: Plan, candidate: tuple[Measurement, ...], control: tuple[Measurement, ...] | None = None
) -> dict[Role, ArmRecord]:
    quiet = turns([[1.01, 0.99, 1.02, 1.0], [0.99, 1.0, 0.98, 1.01], [1.0, 1.02, 1.01, 0.99]])
    made: dict[Role, ArmRecord] = {
        "baseline": ArmRecord(role="baseline", plan=plan.baseline, traces=traces(0), complete=True),
        "control": ArmRecord(role="control", plan=plan.baseline, traces=traces(0), complete=True),
        "candidate": ArmRecord(role="candidate", plan=plan.candidate, traces=traces(0), complete=True),
    }
    return {
        **made,
        "control": replace(made["control"], measurements=quiet if control is None else control),
        "candidate": replace(made["candidate"], measurements=candidate),
    }


def finding(report: Report, metric: str = "throughput_ratio") -> Finding:
    return next(found for found in report.findings if found.metric == metric)


# --- names and pairs -------------------------------------------------------------------------------------------------


@given(st.integers(0, 9), st.integers(1, 99), st.integers(1, 100_000))
def test_a_round_is_read_back_from_its_name(launch: int, number: int, length: int) -> None:
    which = Round(launch=launch, number=number)
    assert round_of(which.item_id(length)) == (which, length)


def test_rounds_that_an_earlier_version_stored_are_read() -> None:
    assert round_of("round-2") == (Round(launch=0, number=2), None)


def test_a_round_that_only_one_side_has_is_in_no_pair() -> None:
    own = {Round(launch=1, number=1): 2.0, Round(launch=1, number=2): 3.0, Round(launch=2, number=1): 5.0}
    companion = {
        Round(launch=1, number=2): 30.0,
        Round(launch=2, number=1): 50.0,
        Round(launch=2, number=2): 1.0,
    }
    assert speed.paired(companion, own) == {1: [(30.0, 3.0)], 2: [(50.0, 5.0)]}


def test_every_length_has_the_same_say_and_a_group_of_its_own() -> None:
    which = Round(launch=1, number=1)
    rows = [
        measured(which, 100.0),
        measured(which, 4.0, length=1024),
        measured(which, 9.0, length=512, mode="warm"),
    ]
    found = speed.rounds_of(rows, THROUGHPUT)
    assert found["cold", "all"] == {which: pytest.approx(20.0)}
    assert found["cold", "1024 tokens in"] == {which: 4.0}
    assert found["warm", "all"] == {which: pytest.approx(9.0)}
    assert ("warm", "512 tokens in") not in found


def test_a_round_that_lacks_a_length_is_not_in_the_whole() -> None:
    first, second = Round(launch=1, number=1), Round(launch=1, number=2)
    rows = [measured(first, 100.0), measured(second, 100.0), measured(first, 4.0, length=1024)]
    assert set(speed.rounds_of(rows, THROUGHPUT)["cold", "all"]) == {first}


# --- looks after pairs of launches -----------------------------------------------------------------------------------


def asked(pairs: Mapping[int, Sequence[tuple[float, float]]], *, planned: int) -> SpeedEstimate:
    question = Question(confidence=0.95, noise=(0.01, -0.01), bound=0.9, higher_is_better=True)
    return in_turns(pairs, question, planned=planned)


def test_a_look_that_may_be_followed_by_others_reads_wider_bounds() -> None:
    pairs = {1: [(100.0, 97.0), (100.0, 99.0), (100.0, 98.0)]}
    alone, first_of_three = asked(pairs, planned=1), asked(pairs, planned=3)
    assert alone.interval.estimate == first_of_three.interval.estimate
    assert (
        first_of_three.interval.lower
        < alone.interval.lower
        < alone.interval.upper
        < first_of_three.interval.upper
    )


def test_a_pair_without_a_round_that_counts_still_was_a_look() -> None:
    second = [(100.0, 97.0), (100.0, 99.0), (100.0, 98.0)]
    assert asked({2: second}, planned=3).interval.lower > asked({1: second}, planned=3).interval.lower


def test_the_error_over_all_looks_stays_within_alpha() -> None:
    """Engines exactly at the limit: how often any look of three would fail or pass them. Nominal 5 % each."""
    rng, failed, passed = np.random.default_rng(3), 0, 0
    for _ in range(400):
        logs = math.log(0.9) + rng.normal(0, 0.02, (3, 1)) + rng.normal(0, 0.05, (3, 4))
        noise = tuple(rng.normal(0, math.hypot(0.02, 0.025), 3))
        question = Question(confidence=0.95, noise=noise, bound=0.9, higher_is_better=True)
        for launches in (1, 2, 3):
            pairs = {k + 1: [(1.0, math.exp(x)) for x in logs[k]] for k in range(launches)}
            found = in_turns(pairs, question, planned=3)
            assert found.harm_p is not None
            failed += found.interval.upper < 0.9 and found.harm_p <= 0.05
            passed += found.interval.lower >= 0.9
            if found.interval.upper < 0.9 or found.interval.lower >= 0.9:
                break
    assert (failed / 400, passed / 400) == (pytest.approx(0.035, abs=0.035), pytest.approx(0.035, abs=0.035))


# --- the verdict -----------------------------------------------------------------------------------------------------


def test_drift_that_both_engines_share_leaves_a_small_difference_visible() -> None:
    plan = plan_of()
    report = judge(plan, arms_of(plan, turns([[0.97, 0.98, 0.96, 0.97], [0.98, 0.97, 0.97, 0.96]])))
    found = finding(report)
    assert found.outcome is Outcome.PASSED, found.detail
    assert found.delta is not None
    assert found.delta.estimate == pytest.approx(0.97, abs=0.005)
    assert (found.delta.n, found.delta.clusters, len(found.delta.launches)) == (8, 2, 2)


def test_a_slower_candidate_regresses_after_one_pair_of_launches() -> None:
    plan = plan_of(KL, SPEED | {"severity": "block"})
    report = judge(plan, arms_of(plan, turns([[0.7, 0.71, 0.69, 0.7]])))
    assert report.verdict is Verdict.FAIL
    assert "throughput 0.70x" in report.sentence


def test_launches_that_differ_leave_speed_open() -> None:
    plan = plan_of()
    noisy = turns([[1.2, 1.21, 1.19, 1.2], [0.8, 0.81, 0.79, 0.8], [1.15, 1.16, 1.14, 1.15]])
    report = judge(plan, arms_of(plan, turns([[0.97, 0.98, 0.96, 0.97]]), noisy))
    assert finding(report).outcome is Outcome.INCONCLUSIVE
    assert report.verdict is Verdict.PASS


def test_the_noise_floor_has_every_pair_of_equal_launches() -> None:
    plan = plan_of()
    noise = judge(plan, arms_of(plan, turns([[1.0, 1.0, 1.0, 1.0]]))).noise
    (throughput,) = [delta for delta in noise.deltas if delta.metric == "throughput_ratio"]
    assert len(throughput.launches) == 3
    assert noise.throughput_ratio == pytest.approx(1.0, abs=0.01)


def test_measuring_ends_once_every_rule_on_speed_is_decided_also_one_that_warns() -> None:
    plan = plan_of(KL, SPEED, {"metric": "ttft_p50_ratio", "at_most": 1.2, "severity": "warn", "reason": "r"})
    throughput = turns([[0.97, 0.98, 0.96, 0.97]])
    assert not speed_decided(plan, arms_of(plan, throughput))
    latency = turns([[1.01, 1.0, 0.99, 1.02]], metric="ttft_p50_ms")
    quiet = turns([[1.0, 1.01, 0.99, 1.0], [0.99, 1.0, 1.01, 1.0]])
    both = (*quiet, *turns([[1.0, 1.01, 0.99, 1.0], [0.99, 1.0, 1.01, 1.0]], metric="ttft_p50_ms")[:-2])
    assert speed_decided(plan, arms_of(plan, (*throughput, *latency[:-2]), both))


def test_a_policy_without_a_rule_on_speed_needs_no_second_pair() -> None:
    plan = plan_of(KL)
    assert speed_decided(plan, arms_of(plan, turns([[0.5, 2.0, 1.0, 1.0]])))


def test_a_warm_rule_speaks_of_prompts_that_share_a_prefix() -> None:
    rule = {"metric": "ttft_p50_ratio", "at_most": 0.8, "mode": "warm", "reason": "what caching is for"}
    plan = plan_of(KL, rule, shared_prefix_tokens=64)
    caching = fake_plan({"reuse": {"prefix_caching": True}}).candidate
    plan = plan.model_copy(update={"candidate": caching})

    def report(ratio: float) -> Report:
        place: dict[str, Any] = {"metric": "ttft_p50_ms", "mode": "warm", "length": 192}
        arms = arms_of(
            plan, turns([[ratio, ratio * 1.02, ratio * 0.98, ratio]], **place),
            turns([[1.0, 1.02, 0.98, 1.0], [1.01, 0.99, 1.0, 1.0]], **place),
        )  # fmt: skip
        arms["candidate"] = replace(arms["candidate"], traces=(*traces(0), *traces(0, "warm")))
        return judge(plan, arms)

    assert report(0.5).verdict is Verdict.PASS
    assert report(1.0).verdict is Verdict.FAIL
    assert "the change does not buy what it was for" in report(1.0).sentence


# --- a fast and broken engine ----------------------------------------------------------------------------------------

FAST = [[2.0, 2.1, 1.9, 2.0], [2.0, 2.05, 1.95, 2.0]]


@pytest.mark.parametrize(
    ("failed", "failed_companion", "verdict"),
    [(0, 0, Verdict.PASS), (1, 0, Verdict.INVALID), (5, 0, Verdict.FAIL), (5, 5, Verdict.INVALID)],
)
def test_a_faster_candidate_that_fails_requests_never_passes(
    failed: int, failed_companion: int, verdict: Verdict
) -> None:
    plan = plan_of()
    arms = arms_of(plan, turns(FAST, failed=failed, failed_companion=failed_companion))
    report = judge(plan, arms)
    assert report.verdict is verdict, report.sentence
    assert report.sentence.startswith(f"{verdict}: ")
    if verdict is not Verdict.PASS:
        assert f"{failed} requests failed under load" in report.sentence


def test_quality_is_not_outweighed_by_speed() -> None:
    plan = plan_of()
    arms = arms_of(plan, turns(FAST))
    arms["candidate"] = replace(arms["candidate"], traces=traces(0.6))
    assert judge(plan, arms).verdict is Verdict.FAIL


def test_a_policy_on_speed_alone_passes_nothing() -> None:
    plan = plan_of(SPEED | {"severity": "block"})
    report = judge(plan, arms_of(plan, turns(FAST)))
    assert report.verdict is Verdict.INVALID
    assert "no blocking rule of the policy speaks of quality" in report.sentence


def test_without_turns_the_baselines_own_requests_are_the_reference() -> None:
    rows = [measured(Round(launch=0, number=1), 5, metric="failed_requests")]
    assert speed.failed_requests([], rows, alpha=0.05) == (
        Verdict.FAIL,
        "5 requests failed under load, none of the baseline's",
    )
    found = speed.failed_requests(rows, rows, alpha=0.05)
    assert found is not None
    assert found[0] is Verdict.INVALID
