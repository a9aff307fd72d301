"""What is proposed: which settings differ, on which model, measured with what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gatekeeper.domain.change import Slo
from gatekeeper.domain.plan import Plan
from gatekeeper.services.views import RunDetail
from gatekeeper.web.run_list import ref_label
from gatekeeper.web.times import Moment, duration, moment

UNSET = "not set"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One setting of the configuration in which the arms differ."""

    setting: str
    baseline: str
    candidate: str


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
    return ChangeSection(differences=differences(plan), facts=tuple(facts))


def differences(plan: Plan) -> tuple[Difference, ...]:
    """The settings in which the arms' configurations differ, named as in a change file."""
    before, after = (
        dict(_flat(arm.config.model_dump(mode="json"))) for arm in (plan.baseline, plan.candidate)
    )
    return tuple(
        Difference(setting=name, baseline=_shown(before.get(name)), candidate=_shown(after.get(name)))
        for name in sorted(before.keys() | after.keys(), key=_rank)
        if before.get(name) != after.get(name)
    )


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


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value


def _rank(setting: str) -> tuple[bool, bool, str]:
    """Quantization and eviction first, their names before their parameters."""
    is_axis = setting.startswith(("quantization.", "eviction."))
    return not is_axis, not setting.endswith((".scheme", ".policy")), setting


def _shown(value: Any) -> str:
    match value:
        case None:
            return UNSET
        case bool():
            return "on" if value else "off"
        case _:
            return str(value)
