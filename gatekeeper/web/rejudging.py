"""The form of a policy with changed margins, and what a stored run comes to under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.domain.policy import Policy, Rule
from gatekeeper.domain.verdict import Finding
from gatekeeper.services.views import RunDetail
from gatekeeper.web import badges, figures
from gatekeeper.web.badges import Badge


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleLine:
    """One rule of a policy. `other`: its limit in the policy that this one is compared with."""

    metric: str
    mode: str
    limit: str
    severity: str
    reason: str
    other: str = ""
    is_changed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MarginField:
    """An input for one rule's limit, in the metric's own unit."""

    name: str
    label: str
    form: str
    value: str
    unit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OutcomeLine:
    """A finding before and after."""

    metric: str
    mode: str
    limit: str
    before: Badge | None
    after: Badge
    detail: str
    is_changed: bool


def rule_lines(policy: Policy, other: Policy | None = None) -> tuple[RuleLine, ...]:
    """The rules of a policy, beside those of another one; rules that only the other has come last."""
    known = {_scope(rule): rule for rule in other.rules} if other else {}
    own = {_scope(rule) for rule in policy.rules}
    lines = [_rule(rule, known.get(_scope(rule)), has_other=other is not None) for rule in policy.rules]
    for scope, rule in known.items():
        if scope not in own:
            line = _rule(rule, None, has_other=False)
            lines.append(
                RuleLine(
                    metric=line.metric, mode=line.mode, limit="no rule", severity="", reason=line.reason,
                    other=f"{line.limit}, {line.severity}", is_changed=True,
                )
            )  # fmt: skip
    return tuple(lines)


def margin_fields(policy: Policy, query: Mapping[str, str]) -> tuple[MarginField, ...]:
    """An input per rule, filled as the address says, else with the policy's own limit."""
    return tuple(
        MarginField(
            name=f"limit-{number}",
            label=figures.of_group(rule.metric, rule.subset) + (f", {rule.mode}" if rule.mode else ""),
            form=rule.form,
            value=query.get(f"limit-{number}", "").strip() or f"{getattr(rule, rule.form):g}",
            unit=figures.unit(rule.metric),
        )
        for number, rule in enumerate(policy.rules)
    )


def changed_policy(policy: Policy, fields: Sequence[MarginField]) -> dict[str, Any]:
    """The policy's document with the limits of the form; the text of a number that is none stays, to be refused."""
    document = policy.model_dump(mode="json", exclude_none=True)
    for rule, field in zip(document["rules"], fields, strict=True):
        if field.value != f"{rule[field.form]:g}":
            try:
                rule[field.form] = float(field.value)
            except ValueError:
                rule[field.form] = field.value
    return document


def outcome_lines(before: RunDetail, after: RunDetail) -> tuple[OutcomeLine, ...]:
    """Every finding of the run judged again, beside the stored one of the same rule."""
    stored = {_place(finding): finding for finding in before.findings}
    return tuple(_outcome(finding, stored.get(_place(finding))) for finding in after.findings)


def _outcome(finding: Finding, stored: Finding | None) -> OutcomeLine:
    return OutcomeLine(
        metric=figures.of_group(finding.metric, finding.group),
        mode=finding.mode,
        limit=figures.limit(finding.rule),
        before=badges.of_finding(stored.outcome, stored.rule.severity) if stored else None,
        after=badges.of_finding(finding.outcome, finding.rule.severity),
        detail=finding.detail,
        is_changed=stored is None or stored.outcome is not finding.outcome,
    )


def _rule(rule: Rule, other: Rule | None, *, has_other: bool) -> RuleLine:
    limit, severity = figures.limit(rule), rule.severity
    beside = f"{figures.limit(other)}, {other.severity}" if other else "no rule"
    return RuleLine(
        metric=figures.of_group(rule.metric, rule.subset),
        mode=rule.mode or "every mode",
        limit=f"{limit} {figures.unit(rule.metric)}".strip(),
        severity=severity,
        reason=rule.reason,
        other=beside if has_other else "",
        is_changed=has_other and beside != f"{limit}, {severity}",
    )


def _scope(rule: Rule) -> tuple[str, str, str | None]:
    return rule.metric, rule.subset, rule.mode


def _place(finding: Finding) -> tuple[str, str, str]:
    return finding.metric, finding.mode, finding.group
