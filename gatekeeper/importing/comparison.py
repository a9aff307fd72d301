"""Two lm-eval outputs judged by a policy, with the statistics of every other verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.change import Change
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.judge import judge
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.measurement import Measurement, Role
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.plan import ArmPlan, Model, Plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.probes import AccuracyProbe
from gatekeeper.domain.run import RunState
from gatekeeper.domain.sentence import no_gain
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Delta, Report
from gatekeeper.importing.lm_eval import measurements_of
from gatekeeper.importing.outputs import Output
from gatekeeper.importing.pairing import common_items, mismatches
from gatekeeper.importing.series import Chosen, Series, choose

SUITE: Final = "lm-eval"
NAMED: Final = 8
"""Tasks that a note names; the document has all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The answer. `not_applicable`: metrics of the policy's rules that these results say nothing of."""

    report: Report
    policy: Policy
    outputs: Mapping[Role, Output]
    chosen: Chosen
    not_applicable: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """What reports render, in the form of a run's; there is no run, so `run_id` is null."""
        baseline, candidate = self.outputs["baseline"], self.outputs["candidate"]
        return {
            "run_id": None,
            **self.report.model_dump(mode="json"),
            "name": f"{candidate.shown_name} against {baseline.shown_name}",
            "state": RunState.FINISHED,
            "model": candidate.model,
            "suite": SUITE,
            "policy": self.policy.name,
            "change": {"suite": SUITE},
            "outputs": {
                role: {"path": output.shown_path, "model": output.model, "tasks": self._tasks(output)}
                for role, output in self.outputs.items()
            },
            "not_applicable": list(self.not_applicable),
            "not_judged": [asdict(entry) for entry in self.chosen.not_judged],
        }

    def _tasks(self, output: Output) -> dict[str, Any]:
        judged = self.chosen.judged
        return {
            name: {
                "items": len(task.items),
                "metric": judged[name].label if name in judged else None,
                **task.settings.compared,
            }
            for name, task in output.tasks.items()
        }


def compare(
    outputs: Mapping[Role, Output],
    policy: Policy,
    *,
    preferred: Sequence[str] = (),
    only_common_items: bool = False,
) -> Comparison:
    """Judge the candidate's output against the baseline's; a control's shows the noise.

    Raises InvalidInput where the outputs cannot be paired, or the policy has no blocking rule that they can answer.
    """
    outputs, notes = _paired(outputs, only_common_items=only_common_items)
    chosen = choose(list(outputs.values()), preferred=preferred)
    arms = {role: _arm(role, output, chosen) for role, output in outputs.items()}
    applied, not_applicable = _applicable(policy, list(arms.values()), chosen)
    report = judge(_plan(applied), arms)
    notes = [*_notes(report, outputs, chosen, not_applicable), *notes]
    report = report.model_copy(
        update={
            "deltas": (*report.deltas, *_shown(applied, outputs, chosen)),
            "requested": {},
            "notes": tuple(notes),
        }
    )
    return Comparison(
        report=report, policy=policy, outputs=outputs, chosen=chosen, not_applicable=not_applicable
    )


def _paired(
    outputs: Mapping[Role, Output], *, only_common_items: bool
) -> tuple[dict[Role, Output], list[str]]:
    """The outputs, of which all have the same items. Raises InvalidInput naming every difference."""
    notes: list[str] = []
    baseline = outputs["baseline"]
    same_tasks = all(output.tasks.keys() == baseline.tasks.keys() for output in outputs.values())
    if only_common_items and same_tasks:
        cut, notes = common_items(list(outputs.values()))
        outputs = dict(zip(outputs, cut, strict=True))
        baseline = outputs["baseline"]
    problems = [
        problem
        for role, output in outputs.items()
        if role != "baseline"
        for problem in mismatches(baseline, output, field=role)
    ]
    problems += [
        FieldProblem(field="candidate", problem=f"{name}: no item is in every output")
        for name, task in baseline.tasks.items()
        if not task.items
    ]
    if problems:
        raise InvalidInput(problems)
    return dict(outputs), notes


# --- arms ------------------------------------------------------------------------------------------------------------


def _arm(role: Role, output: Output, chosen: Chosen) -> ArmRecord:
    rows = [
        row
        for task, series in chosen.judged.items()
        for row in _measured(output, series, group=task, with_probability=task in chosen.with_probability)
    ]
    return _record(role, rows)


def _record(role: Role, rows: Sequence[Measurement]) -> ArmRecord:
    ordered = tuple(sorted(rows, key=lambda row: (row.item_id, row.metric)))
    return ArmRecord(role=role, plan=_ARM, measurements=ordered, complete=True)


def _measured(output: Output, series: Series, *, group: str, with_probability: bool) -> Iterator[Measurement]:
    for (doc_hash, again), sample in output.tasks[series.task].samples[series.filter].items():
        yield from measurements_of(
            item_id=f"{group}/{doc_hash.replace('#', '##')}" + (f"#{again}" if again else ""),
            cluster=group,
            correct=series.correct(sample),
            probability=sample.right_choice_probability if with_probability else None,
        )


def _shown(policy: Policy, outputs: Mapping[Role, Output], chosen: Chosen) -> list[Delta]:
    """The right-or-wrong figures that do not speak for their tasks, each as a group that no rule names."""
    if not chosen.shown:
        return []
    groups = {f"{series.task} {series.label}": series for series in chosen.shown}
    arms: dict[Role, ArmRecord] = {}
    for role, output in outputs.items():
        rows = [
            row
            for group, series in groups.items()
            for row in _measured(output, series, group=group, with_probability=False)
        ]
        arms[role] = _record(role, rows)
    found = [delta for delta in judge(_plan(policy), arms).deltas if delta.group in groups]
    return [delta.model_copy(update={"more_items": None}) for delta in found]


# --- policy ----------------------------------------------------------------------------------------------------------


def _applicable(policy: Policy, arms: Sequence[ArmRecord], chosen: Chosen) -> tuple[Policy, tuple[str, ...]]:
    """The policy with the rules that the arms can answer, and the metrics of the others. Raises InvalidInput."""
    measured = {row.metric for arm in arms for row in arm.measurements}
    supplied = {name for name, metric in METRICS.items() if metric.source in measured}
    rules = tuple(rule for rule in policy.rules if rule.metric in supplied)
    if all(rule.severity == "warn" for rule in rules):
        without = "; ".join(str(entry) for entry in chosen.not_judged[:3])
        held = ", ".join(sorted(supplied)) or f"nothing that can be judged ({without or 'no figure at all'})"
        problem = f"no blocking rule of {policy.name} speaks of what these results hold: {held}"
        raise InvalidInput([FieldProblem(field="policy", problem=problem)])
    absent = dict.fromkeys(rule.metric for rule in policy.rules if rule.metric not in supplied)
    return policy.model_copy(update={"rules": rules}), tuple(absent)


def _notes(
    report: Report, outputs: Mapping[Role, Output], chosen: Chosen, not_applicable: Sequence[str]
) -> list[str]:
    """The report's notes but for the one on gains, which an import cannot show; then what was and was not judged."""
    notes = [note for note in report.notes if note not in no_gain(report.deltas)]
    for role, output in outputs.items():
        model = f", model {output.model}" if output.model else ""
        notes.append(f"{role}: {output.shown_path}{model}")
        if role != "baseline" and output.path.resolve() == outputs["baseline"].path.resolve():
            notes.append(f"{role}: the same directory as the baseline, so nothing of it was compared.")
        if any(not task.settings.compared for task in output.tasks.values()):
            notes.append(f"{role}: without results file; version, few-shot and template were not compared.")
    labels = dict.fromkeys(series.label for series in chosen.judged.values())
    for label in labels:
        tasks = [task for task, series in chosen.judged.items() if series.label == label]
        notes.append(f"Judged: {label} of {_few(tasks)}.")
    if not_applicable:
        titles = ", ".join(METRICS[metric].title for metric in not_applicable)
        notes.append(f"Not applicable, since these results do not hold it: {titles}.")
    reasons = dict.fromkeys((entry.metric, entry.reason) for entry in chosen.not_judged)
    for metric, reason in reasons:
        tasks = [
            entry.task for entry in chosen.not_judged if (entry.metric, entry.reason) == (metric, reason)
        ]
        notes.append(f"Not judged: {metric} of {_few(tasks)}: {reason}.")
    return notes


def _few(tasks: Sequence[str]) -> str:
    more = f" and {len(tasks) - NAMED} more tasks" if len(tasks) > NAMED else ""
    return ", ".join(tasks[:NAMED]) + more


# --- what an import knows nothing of ----------------------------------------------------------------------------------

_ARM: Final = ArmPlan(
    engine="vllm",
    device="cpu",
    model=Model(name="imported", source="imported"),
    config=KVConfig(),
    max_model_len=1,
    max_num_seqs=1,
)
"""Stands where the judge wants to know what was launched. No report shows it."""


def _plan(policy: Policy) -> Plan:
    candidate = KVConfig(engine_args={"imported": True})
    return Plan(
        change=Change(model="imported", candidate=candidate, suite=SUITE, policy=policy.name),
        suite=Suite(name=SUITE, description="", probes=(AccuracyProbe(probe="accuracy", tasks=(SUITE,)),)),
        policy=policy,
        baseline=_ARM,
        candidate=_ARM,
    )
