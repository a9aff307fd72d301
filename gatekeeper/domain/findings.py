"""One rule, one mode, one group, one delta: what does it come to?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.policy import ALL, Rule
from gatekeeper.domain.probes import PROBED_MODES
from gatekeeper.domain.scope import Application
from gatekeeper.domain.sentence import (
    BUYS_NOTHING,
    amount,
    bounds,
    kept,
    limit_in_force,
    points,
    telling_decimals,
)
from gatekeeper.domain.verdict import Delta, Finding, Outcome
from gatekeeper.domain.waiver import Waiver

FEWEST_TO_PASS: Final = 8
"""Fewer documents (or scored items) pass nothing: docs/decision.md shows what a mean over so few does not cover."""


EXCUSABLE: Final = (Outcome.REGRESSED, Outcome.INCONCLUSIVE)
"""What a waiver can excuse."""


def finding_of(
    application: Application,
    delta: Delta | None,
    bound: float | None,
    baseline: ArmRecord,
    candidate: ArmRecord,
    *,
    proven: bool | None,
    waiver: Waiver | None = None,
) -> Finding:
    """Apply a rule. `proven`: whether Holm's procedure upheld the harm; None for rules outside the family.

    `waiver` excuses what the figures come to, never that there are none. Where items came to nothing, the figure of
    those that are left decides nothing and is no part of the finding.
    """
    rule, mode = application.rule, application.mode
    suite = METRICS[rule.metric].suite
    not_finite = _not_finite(suite, mode, baseline, candidate)
    outcome, detail = (
        not_finite
        or _not_exercised(suite, mode, baseline, candidate)
        or _not_measured(suite, application, delta, candidate)
        or _excused(rule, _weigh(rule, delta, bound, proven), waiver)
    )
    return Finding(
        outcome=outcome, metric=rule.metric, mode=mode, group=application.group, rule=rule, bound=bound,
        delta=None if not_finite else delta, detail=detail,
    )  # fmt: skip


def worst_of(findings: Sequence[Finding]) -> Finding:
    """Of the same rule's findings in several tasks the one that stands for all: the worst outcome, then estimate.

    It passes only if every task does, and it regresses if one does, so it decides as all of them together would.
    """
    worst = min(findings, key=lambda finding: (_WORST_FIRST.index(finding.outcome), _estimate(finding)))
    return worst.model_copy(update={"detail": f"the worst of {len(findings)} tasks: {worst.detail}"})


_WORST_FIRST: Final = (
    Outcome.REGRESSED,
    Outcome.ERRORED,
    Outcome.NOT_EXERCISED,
    Outcome.MISSING,
    Outcome.INCONCLUSIVE,
    Outcome.WAIVED,
    Outcome.PASSED,
)


def _estimate(finding: Finding) -> float:
    """Lower is worse: only metrics that may not drop have tasks."""
    return finding.delta.estimate if finding.delta else 0.0


def _not_finite(
    suite: str, mode: Mode, baseline: ArmRecord, candidate: ArmRecord
) -> tuple[Outcome, str] | None:
    broken, broken_baseline = (
        _broken(candidate, suite, mode),
        _broken(baseline, suite, mode) | _broken(baseline, suite, "cold"),
    )
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
                objection = f"{exercise.counter} {exercise.objection} in {mode} mode"
                return Outcome.NOT_EXERCISED, f"{arm.role}: {objection}"
    return None


def _not_measured(
    suite: str, application: Application, delta: Delta | None, candidate: ArmRecord
) -> tuple[Outcome, str] | None:
    mode = application.mode
    if delta is None:
        stop, skipped = candidate.stop_of(suite, mode), dict(candidate.skipped)
        probes = (
            suite, f"{suite}/{application.group}", mode, "modes" if mode in PROBED_MODES else suite
        )  # fmt: skip
        reason = next((skipped[probe] for probe in probes if probe in skipped), stop and stop.reason)
        return (
            (Outcome.NOT_EXERCISED, f"{suite} did not run: {reason}")
            if reason
            else (Outcome.MISSING, "no data")
        )
    if delta.missing:
        return Outcome.MISSING, f"{delta.missing} of {delta.n + delta.missing} items have no counterpart"
    return None


def _weigh(rule: Rule, delta: Delta | None, bound: float | None, proven: bool | None) -> tuple[Outcome, str]:
    assert delta is not None  # `_not_measured` came first
    if bound is None or delta.lower is None or delta.upper is None:
        return _weigh_unbounded(rule, delta, bound)
    metric = METRICS[rule.metric]
    extra = telling_decimals(metric, delta, bound)
    limit, shown = limit_in_force(rule, bound, extra), _shown(rule, delta, extra)
    too_few = _too_few(delta)
    within, powerless = _within(rule, delta, bound), _powerless(rule, delta)
    beyond = not within and _beyond(rule, delta, bound)
    if beyond and proven is not False:
        bought = f"; {BUYS_NOTHING}" if rule.demands_gain else ""
        return Outcome.REGRESSED, f"{shown} {_breaks(rule)} {limit}{bought}"
    if powerless:
        return Outcome.NOT_EXERCISED, powerless
    if within:
        if too_few:
            return Outcome.INCONCLUSIVE, f"{shown} within {limit}, but {too_few}"
        return Outcome.PASSED, f"{shown} within {limit}"
    held = f"{shown} straddles {limit}"
    if beyond:
        assert delta.harm_p is not None  # what has no p-value is no part of the family
        held = f"{shown} {_breaks(rule)} {limit}, but not proven so (p = {delta.harm_p:.2g})"
    return Outcome.INCONCLUSIVE, f"{held}; {_more(delta)}{_detectable(delta)}"


def _excused(rule: Rule, found: tuple[Outcome, str], waiver: Waiver | None) -> tuple[Outcome, str]:
    outcome, detail = found
    if waiver is None or rule.severity != "block" or outcome not in EXCUSABLE:
        return found
    return Outcome.WAIVED, f"{detail}; {waiver.phrase}"


def _powerless(rule: Rule, delta: Delta) -> str | None:
    """Why a margin cannot be broken here, whatever the candidate does; None if it can.

    Where the baseline's own share is within the margin, losing all of it is within the margin too. Passing would say
    that nothing was lost, when there was nothing to lose.
    """
    if rule.max_drop is None or delta.baseline is None or delta.baseline > rule.max_drop:
        return None
    share, margin = 100 * delta.baseline, points(rule.max_drop)
    return f"no power: the baseline itself reaches {share:.1f}%, so that nothing could fall by {margin}"


def without_power(findings: Sequence[Finding], deltas: Sequence[Delta]) -> tuple[str, ...]:
    """A note for every passed rule on all items together: the tasks in which it could not have failed."""
    notes = []
    for finding in findings:
        if finding.outcome is Outcome.PASSED and finding.group == ALL and METRICS[finding.metric].has_tasks:
            silent = [
                delta.group
                for delta in deltas
                if (delta.metric, delta.mode) == (finding.metric, finding.mode)
                and _powerless(finding.rule, delta)
            ]
            if silent:
                rest = "the baseline itself hardly solves that"
                notes.append(f"{METRICS[finding.metric].title}: no power in {', '.join(silent)}; {rest}.")
    return tuple(notes)


def _too_few(delta: Delta) -> str | None:
    """Why a figure can pass nothing, however good it is; None if it can."""
    if METRICS[delta.metric].kind not in ("token", "score") or delta.clusters >= FEWEST_TO_PASS:
        return None
    return f"fewer than {FEWEST_TO_PASS} documents pass nothing, {delta.clusters} were measured"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lack:
    """What a finding would need to be decided. `margin_helps`: a wider margin could decide it as it is."""

    words: str
    margin_helps: bool


def lack_of(finding: Finding) -> Lack:
    """What an Inconclusive finding lacks. Without bounds or a limit, its detail says nothing else."""
    delta, limit = finding.delta, finding.limit
    if delta is None or limit is None or delta.lower is None or delta.upper is None:
        return Lack(words=finding.detail, margin_helps=False)
    too_few = _too_few(delta)
    if too_few and _within(finding.rule, delta, limit):
        return Lack(words=too_few, margin_helps=False)
    return Lack(words=_more(delta), margin_helps=not too_few)


def _weigh_unbounded(rule: Rule, delta: Delta, bound: float | None) -> tuple[Outcome, str]:
    """What a rule comes to whose limit or whose estimate's bounds are not known."""
    if bound is not None:
        return Outcome.INCONCLUSIVE, "no noise floor was measured, so the bounds are unknown"
    if rule.form == "at_least_of_baseline":
        return Outcome.INCONCLUSIVE, f"{kept(delta)}, so there is nothing to keep"
    return Outcome.INCONCLUSIVE, "no noise floor was measured, so the limit is unknown"


def _shown(rule: Rule, delta: Delta, extra: int) -> str:
    estimate = bounds(METRICS[rule.metric], delta, extra)
    return f"{estimate}, {kept(delta)}," if rule.form == "at_least_of_baseline" else estimate


def _within(rule: Rule, delta: Delta, bound: float) -> bool:
    assert delta.lower is not None  # the caller looked
    assert delta.upper is not None
    match rule.form:
        case "at_most" | "at_most_noise_multiple":
            return delta.upper <= bound
        case "at_least":
            return delta.lower >= bound
        case "max_drop":
            return delta.lower > bound
        case "at_least_of_baseline":
            assert rule.at_least_of_baseline is not None  # it is the form
            return delta.kept_lower is not None and delta.kept_lower > rule.at_least_of_baseline


def _beyond(rule: Rule, delta: Delta, bound: float) -> bool:
    assert delta.lower is not None  # the caller looked
    assert delta.upper is not None
    match rule.form:
        case "at_most" | "at_most_noise_multiple":
            return delta.lower > bound
        case "at_least":
            return delta.upper < bound
        case "max_drop" | "at_least_of_baseline":
            return delta.upper < 0


def _breaks(rule: Rule) -> str:
    """How figures stand to a limit that they break. A real loss breaks a margin also where it may be smaller."""
    match rule.form:
        case "at_most" | "at_most_noise_multiple" | "at_least":
            return "beyond"
        case "max_drop":
            return "is a loss, margin"
        case "at_least_of_baseline":
            return "is a loss and may leave less than"


def _more(delta: Delta) -> str:
    if METRICS[delta.metric].kind == "speed":
        return "more rounds or launches are needed"
    if delta.more_items:
        return f"about {delta.more_items:,} more item{'s' if delta.more_items > 1 else ''} would decide"
    return "more items may not decide" if delta.more_items is None else "a few more items would decide"


def _detectable(delta: Delta) -> str:
    if delta.detectable is None:
        return ""
    metric = METRICS[delta.metric]
    return f"; with these {delta.n} items, harm shows reliably from {amount(metric, delta.detectable)}"
