"""What a run under way need not measure any more, so that engine time is saved.

*The verdict is sure to be FAIL.* With m blocking hypotheses, a rule whose harm has p <= alpha / m is rejected by Holm's
procedure whatever the other p-values turn out to be: its first step compares the smallest p-value with alpha / m (Holm
1979). The p-values are those of all looks so far, so they never rise again, and stopping here costs no error.

*A probe is settled in a mode.* Every blocking rule that it answers there has passed at this look, whose bounds are read
at the look's own level, or has next to no chance that the last look decides it. Stopping for the first is what the
design's levels are for; stopping for the second can only leave an answer open.

*Speed is decided.* Pairs of launches are looks too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Mode, Role, Stop
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.scope import applications
from gatekeeper.domain.verdict import Finding, Outcome, Report
from gatekeeper.stats.sequential import NEGLIGIBLE_CHANCE


def certain_failure(plan: Plan, arms: Mapping[Role, ArmRecord]) -> str | None:
    """Why the verdict is sure to be FAIL with the candidate's probes so far, or None while it is not."""
    return _certain_failure(plan, arms, _as_if_over(plan, arms, arms["candidate"].stops))


def settled(plan: Plan, arms: Mapping[Role, ArmRecord], suite: str, mode: Mode, batches: int) -> str | None:
    """Why the rest of a probe is not needed in one mode after its first `batches` batches, or None while it is.

    The candidate holds these batches, and of other probes and modes what was measured before.
    """
    stop = Stop(suite=suite, mode=mode, batches=batches, reason="")
    report = _as_if_over(plan, arms, (*arms["candidate"].stops, stop))
    failure = _certain_failure(plan, arms, report)
    if failure is not None:
        return f"the verdict was certain: {failure}"
    findings = [f for f in report.findings if _answers(f, suite, mode)]
    if not findings or not all(f.outcome is Outcome.PASSED or _is_futile(f) for f in findings):
        return None
    open_still = [f.metric for f in findings if f.outcome is not Outcome.PASSED]
    if open_still:
        return f"the rest would not decide {', '.join(dict.fromkeys(open_still))}"
    return "all blocking rules on it passed"


def speed_decided(plan: Plan, arms: Mapping[Role, ArmRecord]) -> bool:
    """Whether every rule on speed, also one that only warns, has passed or found its regression at this look.

    Speed is measured last, so this is the final judgement, Holm's procedure included, if nothing else is measured.
    """
    report = _as_if_over(plan, arms, arms["candidate"].stops)
    speed = [f.outcome for f in report.findings if METRICS[f.metric].kind == "speed"]
    return all(outcome in (Outcome.PASSED, Outcome.REGRESSED) for outcome in speed)


def _as_if_over(plan: Plan, arms: Mapping[Role, ArmRecord], stops: tuple[Stop, ...]) -> Report:
    """The report if the candidate ended here."""
    return judge(plan, {**arms, "candidate": replace(arms["candidate"], complete=True, stops=stops)})


def _certain_failure(plan: Plan, arms: Mapping[Role, ArmRecord], report: Report) -> str | None:
    hypotheses = [
        application
        for application in applications(plan, arms["baseline"], arms["candidate"])
        if application.rule.severity == "block"
    ]
    level = plan.policy.alpha / max(len(hypotheses), 1)
    proven = (finding for finding in report.findings if _is_final(finding, level))
    return next((f"{finding.metric}: {finding.detail}" for finding in proven), None)


def _is_final(finding: Finding, level: float) -> bool:
    """A regression without a p-value is exact (capacity) or a value that is not a number."""
    if finding.rule.severity != "block" or finding.outcome is not Outcome.REGRESSED:
        return False
    harm_p = finding.delta.harm_p if finding.delta else None
    return harm_p is None or harm_p <= level


def _answers(finding: Finding, suite: str, mode: Mode) -> bool:
    here = (METRICS[finding.metric].suite, finding.mode) == (suite, mode)
    return here and finding.rule.severity == "block"


def _is_futile(finding: Finding) -> bool:
    chance = finding.delta.chance_to_decide if finding.delta else None
    return finding.outcome is Outcome.INCONCLUSIVE and chance is not None and chance < NEGLIGIBLE_CHANCE
