"""What is proposed: which settings differ, on which model, measured with what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from gatekeeper.domain.change import Slo
from gatekeeper.domain.differences import Difference, differences
from gatekeeper.domain.plan import Plan
from gatekeeper.services.views import RunDetail
from gatekeeper.web.run_list import ref_label
from gatekeeper.web.times import Moment, duration, moment


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A label and a text; `moment` instead of the text for a point in time."""

    label: str
    text: str = ""
    is_code: bool = False
    moment: Moment | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeSection:
    """The change and its circumstances."""

    differences: tuple[Difference, ...]
    facts: tuple[Fact, ...]


def change_section(run: RunDetail, plan: Plan, *, now: datetime) -> ChangeSection:
    """Describe the change."""
    facts = [fact for fact in _facts(run, plan, now) if fact.text or fact.moment]
    before, after = (arm.config.model_dump(mode="json") for arm in (plan.baseline, plan.candidate))
    return ChangeSection(differences=differences(before, after), facts=tuple(facts))


def _facts(run: RunDetail, plan: Plan, now: datetime) -> Iterator[Fact]:
    model, deployment = plan.candidate.model, plan.change.deployment
    yield Fact(label="Model", text=" @ ".join(part for part in (model.name, model.revision) if part))
    yield Fact(label="Candidate", text=plan.candidate.config.label)
    if run.engine is not None:
        yield Fact(label="Engine", text=f"{run.engine.name} {run.engine.version}")
        yield Fact(label="Hardware", text=f"{run.engine.hardware} ({run.engine.device})")
    else:
        yield Fact(label="Engine", text=f"{plan.candidate.engine} on {plan.candidate.device}")
    declared = [
        f"context {deployment.max_context:,}" if deployment.max_context else "",
        f"{deployment.decode_tokens:,} decoded" if deployment.decode_tokens else "",
        f"{deployment.requests_in_flight} concurrent",
        f"{deployment.request_rate:g} requests/s" if deployment.request_rate else "",
        _objective(deployment.slo) if deployment.slo else "",
        deployment.scenario if deployment.scenario != "default" else "",
    ]
    yield Fact(label="Deployment", text=", ".join(part for part in declared if part))
    yield Fact(label="Suite", text=plan.suite.name)
    yield Fact(label="Policy", text=f"{plan.policy.name}, α {plan.policy.alpha:g}")
    yield Fact(label="Author", text=run.author or "")
    yield Fact(label="Ref", text=ref_label(run.repo, run.commit), is_code=True)
    yield Fact(label="Submitted", moment=moment(run.created_at, now=now))
    yield Fact(label="Took", text=_took(run))
    yield Fact(label="Attempt", text=str(run.attempt) if run.attempt > 1 else "")
    yield Fact(label="Run", text=str(run.run_id), is_code=True)


def _objective(slo: Slo) -> str:
    limits = {"TTFT": slo.ttft_ms, "per token": slo.tpot_ms, "end to end": slo.e2e_ms}
    return " and ".join(f"{name} ≤ {limit:g} ms" for name, limit in limits.items() if limit is not None)


def _took(run: RunDetail) -> str:
    if run.started_at is None or run.finished_at is None:
        return ""
    return duration(run.finished_at - run.started_at)
