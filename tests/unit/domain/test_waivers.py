"""What a waiver excuses, and what it can't."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatekeeper.catalog import get_suite
from gatekeeper.domain.change_key import change_key
from gatekeeper.domain.interim import certain_failure
from gatekeeper.domain.judge import judge
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.verdict import Outcome, Report, Verdict
from gatekeeper.domain.waiver import LONGEST, Waiver, expiry_problem
from tests.unit.web import samples

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def a_waiver(metric: str = "decode_kl", **changed: Any) -> Waiver:
    values: dict[str, Any] = {
        "id": 1, "metric": metric, "owner": "Ada Example", "reason": "The launch needs the room.",
        "granted_at": NOW, "expires_at": NOW + timedelta(days=14),
    }  # fmt: skip
    return Waiver(**values | changed)


def with_arms(**fields: Any) -> Plan:
    """The sample's plan with both arms changed, as after the model was registered anew or on another worker."""
    plan = samples.plan()
    arms = {arm: getattr(plan, arm).model_copy(update=fields) for arm in ("baseline", "candidate")}
    return plan.model_copy(update=arms)


def judged(*waivers: Waiver) -> Report:
    plan, arms = samples.failing()
    return judge(plan.model_copy(update={"waivers": waivers}), arms)


def blocked_metrics() -> list[str]:
    return sorted(
        {f.metric for f in judged().findings if f.outcome is Outcome.REGRESSED and f.rule.severity == "block"}
    )


def test_a_waiver_for_every_regression_opens_the_gate_and_the_sentence_names_who_and_until_when() -> None:
    waivers = [a_waiver(metric, id=number) for number, metric in enumerate(blocked_metrics())]
    assert judged().verdict is Verdict.FAIL
    report = judged(*waivers)
    assert report.verdict is Verdict.PASS
    assert "waived by Ada Example until 2026-12-14, because The launch needs the room" in report.sentence
    assert {f.outcome for f in report.findings if f.rule.severity == "block"} == {
        Outcome.PASSED,
        Outcome.WAIVED,
    }
    assert sorted(waiver.metric for waiver in report.waivers) == blocked_metrics()


def test_a_waiver_excuses_its_own_metric_only() -> None:
    assert len(blocked_metrics()) > 1
    report = judged(a_waiver(blocked_metrics()[0]))
    assert report.verdict is Verdict.FAIL
    assert [waiver.metric for waiver in report.waivers] == blocked_metrics()[:1]


def test_a_waiver_that_excused_nothing_is_not_in_the_report() -> None:
    plan, arms = samples.passing()
    plain = judge(plan, arms)
    assert judge(plan.model_copy(update={"waivers": (a_waiver(),)}), arms) == plain
    assert plain.waivers == ()


def test_what_was_not_measured_can_not_be_excused() -> None:
    plan, arms = samples.failing()
    arms["candidate"] = replace(arms["candidate"], traces=())
    waivers = tuple(a_waiver(rule.metric, id=i) for i, rule in enumerate(plan.policy.rules))
    report = judge(plan.model_copy(update={"waivers": waivers}), arms)
    assert report.verdict is Verdict.INVALID


def test_a_value_that_is_no_number_can_not_be_excused() -> None:
    plan, arms = samples.passing()
    first, *rest = arms["candidate"].traces
    broken = replace(first, token_logprobs=[None, *first.token_logprobs[1:]])
    arms["candidate"] = replace(arms["candidate"], traces=(broken, *rest))
    waivers = tuple(a_waiver(rule.metric, id=i) for i, rule in enumerate(plan.policy.rules))
    report = judge(plan.model_copy(update={"waivers": waivers}), arms)
    assert report.verdict is Verdict.FAIL


def test_a_run_whose_failure_is_waived_is_not_broken_off() -> None:
    plan, arms = samples.failing()
    assert certain_failure(plan, arms)
    waivers = tuple(a_waiver(metric, id=i) for i, metric in enumerate(blocked_metrics()))
    assert certain_failure(plan.model_copy(update={"waivers": waivers}), arms) is None


def test_a_change_is_the_same_whatever_it_is_called_and_wherever_it_comes_from() -> None:
    key = change_key(samples.plan())
    again = samples.plan(samples.change(name="other", ref={"commit": "abc"}, engine="vllm"))
    assert change_key(again) == key
    assert change_key(again.model_copy(update={"suite": get_suite("deep")})) == key


@pytest.mark.parametrize(
    "other",
    [
        samples.plan(samples.change("fp8_e5m2")),
        samples.plan(samples.change(deployment={"max_context": 512})),
        samples.plan(samples.change(baseline={"scheduling": {"max_num_seqs": 8}})),
        with_arms(model=samples.MODEL.model_copy(update={"source": "models/another"})),
        with_arms(model=samples.MODEL.model_copy(update={"revision": "5c1d"})),
        with_arms(device="cuda"),
        with_arms(engine="reference"),
    ],
)
def test_a_change_is_another_where_anything_that_runs_is_another(other: Plan) -> None:
    assert change_key(other) != change_key(samples.plan())


@pytest.mark.parametrize(
    ("expires_at", "problem"),
    [
        (NOW, "is in the past"),
        (NOW + LONGEST, None),
        (NOW + LONGEST + timedelta(days=1), "is more than 90 days away"),
    ],
)
def test_a_waiver_ends_in_the_near_future(expires_at: datetime, problem: str | None) -> None:
    assert expiry_problem(expires_at, NOW) == problem
