"""One rule, one mode, one delta: what does it come to?"""

from __future__ import annotations

from collections.abc import Mapping

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.sentence import amount, bounds
from gatekeeper.domain.verdict import Delta, Finding, Outcome

SUITE_OF_KIND = {"binary": "accuracy", "token": "fidelity", "speed": "performance", "capacity": "capacity"}
"""Metric kind -> the probe that measures it."""


def expected_modes(metric: str, plan: Plan) -> tuple[Mode, ...]:
    """The cache states in which a rule on this metric has to be answered."""
    return plan.candidate.modes if METRICS[metric].kind == "token" else ("cold",)


def finding_of(
    rule: Rule,
    mode: Mode,
    delta: Delta | None,
    baseline: ArmRecord,
    candidate: ArmRecord,
    *,
    proven: bool | None,
) -> Finding:
    """Apply a rule. `proven`: whether Holm's procedure upheld the harm; None for rules outside the family."""
    suite = SUITE_OF_KIND[METRICS[rule.metric].kind]
    outcome, detail = (
        _not_finite(suite, mode, baseline, candidate)
        or _not_exercised(suite, mode, baseline, candidate)
        or _not_measured(suite, delta, candidate)
        or _weigh(rule, delta, proven)
    )
    return Finding(outcome=outcome, metric=rule.metric, mode=mode, rule=rule, delta=delta, detail=detail)


def _not_finite(
    suite: str, mode: Mode, baseline: ArmRecord, candidate: ArmRecord
) -> tuple[Outcome, str] | None:
    broken, broken_baseline = _broken(candidate, suite, mode), _broken(baseline, suite, "cold")
    if broken_baseline:
        return Outcome.MISSING, f"the baseline itself has no finite value for {_listed(broken_baseline)}"
    if broken:
        return Outcome.REGRESSED, f"the candidate has no finite value for {_listed(broken)}, the baseline has"
    return None


def _listed(reasons: Mapping[str, str]) -> str:
    item, reason = next(iter(sorted(reasons.items())))
    return f"{len(reasons)} items ({item}: {reason})"


def _broken(arm: ArmRecord, suite: str, mode: Mode) -> dict[str, str]:
    """Item id -> reason, for items without a finite value."""
    items = {
        m.item_id: m.reason or "no reason"
        for m in arm.measurements
        if (m.suite, m.mode, m.value) == (suite, mode, None)
    }
    return items | {
        trace.item_id: "NaN or infinite logprob"
        for trace in arm.traces
        if (trace.suite, trace.mode) == (suite, mode)
        and (None in trace.token_logprobs or any(None in row for row in trace.top_logprobs))
    }


def _not_exercised(
    suite: str, mode: Mode, baseline: ArmRecord, candidate: ArmRecord
) -> tuple[Outcome, str] | None:
    for arm in (baseline, candidate):
        for exercise in arm.exercises:
            if (exercise.suite, exercise.mode) == (suite, mode) and not exercise.happened:
                wanted = "did not move" if exercise.expected == "moved" else f"moved by {exercise.moved:g}"
                return Outcome.NOT_EXERCISED, f"{arm.role}: {exercise.counter} {wanted} in {mode} mode"
    return None


def _not_measured(suite: str, delta: Delta | None, candidate: ArmRecord) -> tuple[Outcome, str] | None:
    if delta is None:
        reason = dict(candidate.skipped).get(suite)
        return (
            (Outcome.NOT_EXERCISED, f"{suite} did not run: {reason}")
            if reason
            else (Outcome.MISSING, "no data")
        )
    if delta.missing:
        return Outcome.MISSING, f"{delta.missing} of {delta.n + delta.missing} items have no counterpart"
    return None


def _weigh(rule: Rule, delta: Delta | None, proven: bool | None) -> tuple[Outcome, str]:
    assert delta is not None  # `_not_measured` came first
    metric = METRICS[rule.metric]
    limit = amount(metric, rule.bound)
    within = _within(rule, delta)
    if within:
        return Outcome.PASSED, f"{bounds(metric, delta)} within {limit}"
    if _beyond(rule, delta) and proven is not False:
        return Outcome.REGRESSED, f"{bounds(metric, delta)} beyond {limit}"
    if delta.lower is None or delta.upper is None:
        return Outcome.INCONCLUSIVE, "no noise floor was measured, so the bounds are unknown"
    more = (
        f"about {delta.more_items:,} more items would decide"
        if delta.more_items
        else "more items may not decide"
    )
    if metric.kind == "speed":
        more = "more rounds or launches are needed"
    return Outcome.INCONCLUSIVE, f"{bounds(metric, delta)} straddles {limit}; {more}{_detectable(delta)}"


def _within(rule: Rule, delta: Delta) -> bool:
    match METRICS[rule.metric].form:
        case "at_most":
            return delta.upper is not None and delta.upper <= rule.bound
        case "at_least":
            return delta.lower is not None and delta.lower >= rule.bound
        case "max_drop":
            return delta.lower is not None and delta.lower > rule.bound


def _beyond(rule: Rule, delta: Delta) -> bool:
    match METRICS[rule.metric].form:
        case "at_most":
            return delta.lower is not None and delta.lower > rule.bound
        case "at_least":
            return delta.upper is not None and delta.upper < rule.bound
        case "max_drop":
            return delta.upper is not None and delta.upper < 0


def _detectable(delta: Delta) -> str:
    if delta.detectable is None:
        return ""
    metric = METRICS[delta.metric]
    return f"; with these {delta.n} items, harm shows reliably from {amount(metric, delta.detectable)}"
