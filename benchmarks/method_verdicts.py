"""What the product's judge says of the figures that `methods.py` measured, item by item.

The plan is of the reference engine, with a suite of the benchmark's own texts and passkeys. Of the policy only the
rules stay that these can answer; `unanswered` names the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gatekeeper.catalog import get_policy
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.change import Change
from gatekeeper.domain.judge import judge
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.measurement import Measurement, Role, TokenTrace
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.plan import ArmPlan, Model, Plan, make_plan
from gatekeeper.domain.policy import Policy, Rule
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Outcome, Report

POLICY: Final = "default"


@dataclass(frozen=True, kw_only=True)
class Items:
    """The texts, as traces of their forced tokens, and the passkeys of one method."""

    traces: tuple[TokenTrace, ...]
    measurements: tuple[Measurement, ...]

    def arm(self, role: Role, plan: ArmPlan) -> ArmRecord:
        """As the judge sees it, with nothing said of settings."""
        return ArmRecord(
            role=role, plan=plan, traces=self.traces, measurements=self.measurements, complete=True
        )


def suite_of(*, texts: int, context: int, decoded: int, passkeys: int, longest: int) -> Suite:
    """The benchmark as a suite: `texts` documents, and `passkeys` needles in sequences of up to `longest` tokens."""
    probes = (
        {
            "probe": "fidelity", "documents": texts, "context_tokens": context, "decode_tokens": decoded,
        },
        {
            "probe": "retrieval", "families": ["needle"], "context_tokens": [longest], "items_per_cell": passkeys,
        },
    )  # fmt: skip
    return Suite.model_validate({"name": "methods", "description": "docs/methods.md", "probes": probes})


def answerable(policy: Policy, suite: Suite) -> Policy:
    """The policy with those rules whose probe the suite has."""
    asked = {probe.probe for probe in suite.probes}
    rules = tuple(rule for rule in policy.rules if METRICS[rule.metric].suite in asked)
    return policy.model_copy(update={"rules": rules})


def unanswered(suite: Suite) -> Iterator[Rule]:
    """The rules of the default policy on which the benchmark says nothing."""
    policy = get_policy(POLICY)
    kept = answerable(policy, suite).rules
    for rule in policy.rules:
        if (
            rule not in kept or METRICS[rule.metric].against == "cold"
        ):  # no prefix is reused, so nothing is warm
            yield rule


def plan_of(config: Mapping[str, Any], shape: ModelShape, suite: Suite) -> Plan:
    """The plan of a gate on the method."""
    change = Change.model_validate(
        {"model": "benchmarked", "engine": "reference", "candidate": dict(config), "policy": POLICY}
    )
    return make_plan(
        change, model=Model(name="benchmarked", source="benchmarked", shape=shape), suite=suite, device="cpu",
        policy=answerable(get_policy(POLICY), suite), allowed_arguments=frozenset(),
    )  # fmt: skip


def judged(plan: Plan, baseline: Items, candidate: Items) -> Report:
    """The report of a run that measured these."""
    return judge(
        plan,
        {
            "baseline": baseline.arm("baseline", plan.baseline),
            "candidate": candidate.arm("candidate", plan.candidate),
        },
    )


def cell(report: Report) -> str:
    """The verdict, with the metrics that did not pass."""
    failed = [finding for finding in report.findings if finding.outcome is not Outcome.PASSED]
    regressed = [finding for finding in failed if finding.outcome is Outcome.REGRESSED]
    named = ", ".join(dict.fromkeys(METRICS[finding.metric].title for finding in regressed or failed))
    return f"{report.verdict}: {named}" if named else str(report.verdict)
