"""Every rule of the policy: what it demands, what was seen, and what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.policy import Policy, Rule
from gatekeeper.domain.verdict import Delta, Finding, Noise
from gatekeeper.services.views import RunDetail
from gatekeeper.web import badges, figures, plots
from gatekeeper.web.badges import Badge
from gatekeeper.web.plots import Forest

SEVERITIES: Final = {"block": "blocks", "warn": "only warns"}
FIRST: Final = ("fail", "error", "invalid", "unsure", "live", "quiet", "pass")
"""What decided against the change comes first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingRow:
    """One rule in one mode; `mode` is empty for a rule that applies to nothing in this run."""

    badge: Badge
    metric: str
    mode: str
    severity: str
    is_blocking: bool
    limit: str
    estimate: str
    bounds: str
    sample: str
    detail: str
    reason: str
    plot: Forest | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleRow:
    """A rule that has not been applied."""

    metric: str
    limit: str
    severity: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingsSection:
    """Findings, or the rules that wait for evidence. `confidence`: of every bound, in percent."""

    rows: tuple[FindingRow, ...]
    rules: tuple[RuleRow, ...]
    confidence: str
    has_noise: bool
    tally: str


def findings_section(run: RunDetail, policy: Policy) -> FindingsSection:
    """Every rule of a judged run: its findings, or that it has none. Before that, the policy's rules."""
    rows = sorted(
        (_row(finding, run.noise) for finding in run.findings), key=lambda row: FIRST.index(row.badge.tone)
    )
    judged = [finding.rule for finding in run.findings]
    if rows:
        rows += [_idle_row(rule) for rule in policy.rules if rule not in judged]
    rules = () if rows else tuple(_rule(rule) for rule in policy.rules)
    return FindingsSection(
        rows=tuple(rows),
        rules=rules,
        confidence=f"{100 * (1 - policy.alpha):g}%",
        has_noise=any(row.plot is not None and row.plot.noise is not None for row in rows),
        tally=_tally(rows),
    )


def _row(finding: Finding, noise: Noise) -> FindingRow:
    badge, delta = badges.of_finding(finding.outcome, finding.rule.severity), finding.delta
    unit = figures.unit(finding.metric)
    return FindingRow(
        badge=badge,
        metric=figures.of_group(finding.metric, finding.group),
        mode=finding.mode,
        severity=SEVERITIES[finding.rule.severity],
        is_blocking=finding.rule.severity == "block",
        limit=f"{figures.limit(finding.rule)} {unit}".strip(),
        estimate=figures.number(finding.metric, delta.estimate if delta else None),
        bounds=figures.bounds(delta) if delta else "",
        sample=figures.sample(delta) if delta else "",
        detail=finding.detail,
        reason=finding.rule.reason,
        plot=_plot(finding, delta, badge, noise.deltas) if delta else None,
    )


def _idle_row(rule: Rule) -> FindingRow:
    """A rule that speaks of a state in which nothing was measured; it opens and closes nothing."""
    if METRICS[rule.metric].against == "cold":
        why = "no prefix is reused, so there is no warm cache to compare with the cold one"
    else:
        why = f"the candidate has no {rule.mode} mode" if rule.mode else "nothing here is what it speaks of"
    return FindingRow(
        badge=badges.IDLE,
        metric=figures.of_group(rule.metric, rule.subset),
        mode="",
        severity=SEVERITIES[rule.severity],
        is_blocking=rule.severity == "block",
        limit=f"{figures.limit(rule)} {figures.unit(rule.metric)}".strip(),
        estimate=figures.NOT_MEASURED,
        bounds="",
        sample="",
        detail=f"The rule does not apply to this run: {why}.",
        reason=rule.reason,
        plot=None,
    )


def _plot(finding: Finding, delta: Delta, badge: Badge, control: Sequence[Delta]) -> Forest:
    metric, rule = METRICS[finding.metric], finding.rule
    still = figures.neutral(metric.name)
    here = (delta.metric, delta.mode, delta.group)
    floor = [entry.estimate for entry in control if (entry.metric, entry.mode, entry.group) == here]
    # Without a noise floor a limit that is relative to it is unknown; what is always allowed stands in for it.
    bound = finding.limit if finding.limit is not None else (rule.limit_floor or still)
    words = (
        f"{figures.of_group(metric.name, delta.group)} {figures.number(metric.name, delta.estimate)}, "
        f"{figures.bounds(delta)}; limit {figures.limit(rule)}: {badge.word}"
    )
    return plots.forest(
        estimate=delta.estimate,
        lower=delta.lower,
        upper=delta.upper,
        limit=(bound, figures.bound_mark(rule.metric, bound)),
        neutral=(still, "no change"),
        noise=floor[0] if floor else None,
        holds_above=metric.higher_is_better,
        tone=badge.tone,
        label=words,
    )


def _rule(rule: Rule) -> RuleRow:
    return RuleRow(
        metric=figures.of_group(rule.metric, rule.subset),
        limit=f"{figures.limit(rule)} {figures.unit(rule.metric)}".strip(),
        severity=SEVERITIES[rule.severity],
        reason=rule.reason,
    )


def _tally(rows: Sequence[FindingRow]) -> str:
    """How many of each outcome, such as `1 regressed, 4 passed`."""
    words = [row.badge.word.lower() for row in rows]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
