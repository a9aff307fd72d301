"""The view model of several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gatekeeper.domain.differences import Setting, differing
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.verdict import Delta
from gatekeeper.services.views import RunDetail
from gatekeeper.web import badges, figures, links
from gatekeeper.web.badges import Badge
from gatekeeper.web.run_list import Figure

MOST_RUNS: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRun:
    """The head of a column."""

    url: str
    name: str
    badge: Badge
    facts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRow:
    """One metric in one mode over all runs."""

    label: str
    mode: str
    cells: tuple[Figure, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Runs side by side. `warnings`: why their figures may not be comparable; `settings`: where they differ."""

    runs: tuple[ComparedRun, ...]
    warnings: tuple[str, ...]
    settings: tuple[Setting, ...]
    rows: tuple[ComparedRow, ...]


def compare(runs: Sequence[RunDetail]) -> Comparison:
    """Line up the deltas of all runs over all items, whatever they were measured with."""
    plans = [Plan.model_validate(run.plan) for run in runs]
    keys = dict.fromkeys(
        (delta.metric, delta.mode) for run in runs for delta in run.deltas if delta.group == "all"
    )
    return Comparison(
        runs=tuple(_head(run) for run in runs),
        warnings=tuple(_warnings(runs, plans)),
        settings=differing([_settings(plan) for plan in plans]),
        rows=tuple(
            ComparedRow(
                label=" ".join(filter(None, (figures.title(metric), figures.unit(metric)))),
                mode=mode,
                cells=tuple(_cell(run, metric, mode) for run in runs),
            )
            for metric, mode in keys
        ),
    )


def _head(run: RunDetail) -> ComparedRun:
    engine = f"{run.engine.name} {run.engine.version}" if run.engine else ""
    return ComparedRun(
        url=links.run(run.run_id),
        name=run.name,
        badge=badges.of_run(run.state, run.verdict),
        facts=tuple(
            filter(None, (run.model, run.candidate, engine, f"suite {run.suite}", f"policy {run.policy}"))
        ),
    )


def _settings(plan: Plan) -> dict[str, Any]:
    """The candidate's configuration, and below it the baseline's and the deployment."""
    return plan.candidate.config.model_dump(mode="json") | {
        "baseline": plan.baseline.config.model_dump(mode="json"),
        "deployment": plan.change.deployment.model_dump(mode="json"),
    }


def _warnings(runs: Sequence[RunDetail], plans: Sequence[Plan]) -> list[str]:
    """Facts in which the runs differ although figures are only comparable where they agree."""
    facts: dict[str, set[object]] = {
        "models": {run.model for run in runs},
        "suites": {plan.suite.fingerprint for plan in plans},
        "engines": {(run.engine.name, run.engine.version) for run in runs if run.engine},
        "hardware": {run.engine.hardware for run in runs if run.engine},
        "baselines": {plan.baseline.config.model_dump_json() for plan in plans},
    }
    return [f"The runs have different {name}." for name, values in facts.items() if len(values) > 1]


def _cell(run: RunDetail, metric: str, mode: str) -> Figure:
    delta = next(
        (d for d in run.deltas if (d.metric, d.mode, d.group) == (metric, mode, "all")), None
    )  # fmt: skip
    if delta is None:
        return Figure(text=figures.NOT_MEASURED, is_measured=False)
    return Figure(
        text=figures.number(metric, delta.estimate),
        detail=figures.span(metric, delta.lower, delta.upper),
        badge=_badge(run, delta),
    )


def _badge(run: RunDetail, delta: Delta) -> Badge | None:
    found = next((finding for finding in run.findings if finding.delta == delta), None)
    return badges.of_finding(found.outcome, found.rule.severity) if found else None
