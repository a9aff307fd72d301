"""Several runs side by side: in which settings they differ, and every metric of each against its own baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from gatekeeper.domain.differences import Setting, differing
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import Severity
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import EngineInfo, Outcome, Verdict
from gatekeeper.services import history
from gatekeeper.services.ids import run_id_of
from gatekeeper.services.views import RunDetail, View
from gatekeeper.storage.database import Sessions

MOST_RUNS: Final = 8


class ComparedRun(View):
    """One of the runs. `candidate`: what differs from its baseline, in short."""

    run_id: UUID
    name: str
    state: RunState
    verdict: Verdict | None
    model: str
    candidate: str
    suite: str
    policy: str
    engine: EngineInfo | None


class ComparedFigure(View):
    """Candidate minus baseline over all items, with its bounds, and the outcome of the rule on it, if there is one."""

    estimate: float
    lower: float | None
    upper: float | None
    finding: Outcome | None
    severity: Severity | None


class ComparedMetric(View):
    """One metric in one mode. `figures`: a run each, in their order; null where a run has none."""

    metric: str
    mode: Mode
    figures: tuple[ComparedFigure | None, ...]


class ComparisonView(View):
    """Runs side by side. `warnings`: in what they differ although figures are only comparable where they agree."""

    runs: tuple[ComparedRun, ...]
    warnings: tuple[str, ...]
    settings: tuple[Setting, ...]
    metrics: tuple[ComparedMetric, ...]


def compare_runs(sessions: Sessions, ids: Sequence[str]) -> ComparisonView:
    """Compare runs by their ids; one that is named twice, however its id is spelled, counts once.

    Raises InvalidInput and NotFound.
    """
    different = list(dict.fromkeys(map(run_id_of, ids)))
    if not 2 <= len(different) <= MOST_RUNS:
        allowed = f"2 to {MOST_RUNS} different runs"
        problem = f"{len(different)} are named"
        raise InvalidInput([FieldProblem(field="run", problem=problem, allowed=allowed)])
    return compare([history.get_run(sessions, run_id) for run_id in different])


def compare(runs: Sequence[RunDetail]) -> ComparisonView:
    """Line up the deltas of all runs over all items, whatever they were measured with."""
    plans = [Plan.model_validate(run.plan) for run in runs]
    keys = dict.fromkeys(
        (delta.metric, delta.mode) for run in runs for delta in run.deltas if delta.group == "all"
    )
    return ComparisonView(
        runs=tuple(
            ComparedRun(**{name: getattr(run, name) for name in ComparedRun.model_fields}) for run in runs
        ),
        warnings=tuple(_warnings(runs, plans)),
        settings=differing([_settings(plan) for plan in plans]),
        metrics=tuple(
            ComparedMetric(
                metric=metric, mode=mode, figures=tuple(_figure(run, metric, mode) for run in runs)
            )
            for metric, mode in keys
        ),
    )


def _settings(plan: Plan) -> dict[str, Any]:
    """The candidate's configuration, and below it the baseline's and the deployment."""
    return plan.candidate.config.model_dump(mode="json") | {
        "baseline": plan.baseline.config.model_dump(mode="json"),
        "deployment": plan.change.deployment.model_dump(mode="json"),
    }


def _warnings(runs: Sequence[RunDetail], plans: Sequence[Plan]) -> Iterator[str]:
    facts: dict[str, set[object]] = {
        "models": {run.model for run in runs},
        "suites": {plan.suite.fingerprint for plan in plans},
        "engines": {(run.engine.name, run.engine.version) for run in runs if run.engine},
        "hardware": {run.engine.hardware for run in runs if run.engine},
        "baselines": {plan.baseline.config.model_dump_json() for plan in plans},
    }
    return (f"The runs have different {name}." for name, values in facts.items() if len(values) > 1)


def _figure(run: RunDetail, metric: str, mode: str) -> ComparedFigure | None:
    places = ((delta.metric, delta.mode, delta.group) for delta in run.deltas)
    found = next((place for place, key in enumerate(places) if key == (metric, mode, "all")), None)
    if found is None:
        return None
    delta = run.deltas[found]
    finding = next((finding for finding in run.findings if finding.delta == delta), None)
    return ComparedFigure(
        estimate=delta.estimate,
        lower=delta.lower,
        upper=delta.upper,
        finding=finding.outcome if finding else None,
        severity=finding.rule.severity if finding else None,
    )
