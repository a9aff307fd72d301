"""Whether a run's verdict is certain before all of its suite has run, so that engine time can be saved.

After a probe, its metrics have all the evidence that they will ever have. With m blocking hypotheses, a rule whose harm
has p <= alpha / m is rejected by Holm's procedure whatever the other p-values turn out to be: its first step compares
the smallest p-value with alpha / m (Holm 1979). The verdict is then FAIL in any case, by the same test at the same
level as in the final judgement, so stopping here costs no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.scope import applications
from gatekeeper.domain.verdict import Finding, Outcome


def certain_failure(plan: Plan, arms: Mapping[Role, ArmRecord]) -> str | None:
    """Why the verdict is sure to be FAIL with the candidate's probes so far, or None while it is not."""
    baseline, candidate = arms["baseline"], replace(arms["candidate"], complete=True)
    hypotheses = [a for a in applications(plan, baseline, candidate) if a.rule.severity == "block"]
    level = plan.policy.alpha / max(len(hypotheses), 1)
    report = judge(plan, {**arms, "candidate": candidate})
    proven = (finding for finding in report.findings if _is_final(finding, level))
    return next((f"{finding.metric}: {finding.detail}" for finding in proven), None)


def _is_final(finding: Finding, level: float) -> bool:
    """A regression without a p-value is exact (capacity) or a value that is not a number."""
    if finding.rule.severity != "block" or finding.outcome is not Outcome.REGRESSED:
        return False
    harm_p = finding.delta.harm_p if finding.delta else None
    return harm_p is None or harm_p <= level
