"""The verdict: a pure function of the plan and of what was measured.

PASS needs every blocking rule to pass in every mode and group (an intersection-union test: no correction). FAIL holds
the family-wise error over all of them at the policy's alpha (Holm). Anything that leaves the evidence silent about the
change is INVALID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Final

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.basis import Basis
from gatekeeper.domain.delta import delta_of
from gatekeeper.domain.effective import changed, compare, mismatches
from gatekeeper.domain.findings import finding_of, without_power, worst_of
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.noise import noise_between, speed_noise
from gatekeeper.domain.observation import Observation
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import WORST
from gatekeeper.domain.sample import Sample
from gatekeeper.domain.sampling import samples_between
from gatekeeper.domain.scope import Application, applications, bound_of, parts_of, silences
from gatekeeper.domain.sentence import no_gain, summary
from gatekeeper.domain.speed import failed_requests
from gatekeeper.domain.verdict import Delta, Finding, Noise, Outcome, Report, SettingRow, Verdict
from gatekeeper.domain.waiver import Waiver, waiver_of
from gatekeeper.stats.multiple import holm

NOTHING_APPLIES: Final = "no blocking rule of the policy applies to this change"
NO_QUALITY: Final = "no blocking rule of the policy speaks of quality"


def judge(plan: Plan, arms: Mapping[Role, ArmRecord]) -> Report:
    """Judge a run. Missing arms count as not measured; nothing is inferred from silence."""
    blocker = _blocker(arms)
    if blocker is None:
        return _weighed_report(plan, arms)
    if _was_cut_short(arms):
        weighed = _weighed_report(plan, arms)
        if weighed.verdict is Verdict.FAIL:
            return weighed
    verdict, sentence = blocker
    return _report(plan, arms, verdict, f"{verdict}: {sentence}")


def _was_cut_short(arms: Mapping[Role, ArmRecord]) -> bool:
    """True where one of the candidate's later probes could not measure: what others proved before stands."""
    baseline, candidate = arms.get("baseline"), arms.get("candidate")
    if baseline is None or candidate is None or candidate.failure is None or _mismatch(candidate):
        return False
    return baseline.complete and not _mismatch(baseline) and candidate.failure.kind == "infrastructure"


def _weighed_report(plan: Plan, arms: Mapping[Role, ArmRecord]) -> Report:
    """The report of a run whose evidence can be weighed."""
    baseline, candidate, control = arms["baseline"], arms["candidate"], arms.get("control")
    noise = _noise(plan, baseline, control)
    findings, deltas = _findings(plan, baseline, candidate, noise)
    gaps = (*plan.coverage_gaps, *_silent(findings))
    verdict = _verdict(findings, gaps)
    sentence = summary(verdict, findings, deltas, gaps)
    failed = failed_requests(baseline.measurements, candidate.measurements, alpha=plan.policy.alpha)
    if failed is not None and verdict is not Verdict.FAIL:
        verdict, sentence = failed[0], f"{failed[0]}: {failed[1]}."
    notes = no_gain(deltas) if verdict is Verdict.PASS else ()
    notes = (
        *notes,
        *without_power(findings, deltas),
        *_doubts(baseline, candidate),
        *_left_out(plan, candidate),
        *filter(None, [plan.undeclared]),
    )
    if not noise.deltas:
        notes = (*notes, "The noise floor of this setup was not measured.")
    return _report(
        plan, arms, verdict, sentence,
        findings=findings, deltas=deltas, noise=noise, notes=notes,
    )  # fmt: skip


def _blocker(arms: Mapping[Role, ArmRecord]) -> tuple[Verdict, str] | None:
    """What keeps the evidence from being weighed at all, most fundamental first."""
    baseline, candidate = arms.get("baseline"), arms.get("candidate")
    if baseline is None:
        return Verdict.ERROR, "no baseline was measured."
    if baseline.failure is not None:
        verdict = Verdict.INVALID if baseline.failure.kind == "refused" else Verdict.ERROR
        return verdict, f"the baseline engine {baseline.failure.kind}: {baseline.failure.cause}"
    unsound = _mismatch(baseline)
    if unsound:
        return Verdict.INVALID, f"baseline is unsound: {unsound}."
    if candidate is None:
        return Verdict.ERROR, "the candidate was not measured."
    if candidate.failure is not None:
        return _failed_candidate(candidate)
    not_applied = _mismatch(candidate)
    if not_applied:
        return Verdict.INVALID, f"the setting was not applied: {not_applied}."
    rows = _changed(baseline, candidate)
    if rows and all(row.agrees is None for row in rows):
        named = "; ".join(f"{row.sentence} ({row.reason})" for row in rows)
        return Verdict.INVALID, f"nothing that the change sets could be verified: {named}."
    if not (baseline.complete and candidate.complete):
        return Verdict.ERROR, "an arm ended before its suite did."
    return None


def _failed_candidate(candidate: ArmRecord) -> tuple[Verdict, str]:
    failure = candidate.failure
    assert failure is not None  # the caller looked
    match failure.kind:
        case "refused":
            return Verdict.INVALID, f"the engine refused to start with the candidate: {failure.cause}"
        case "died" | "stalled" if failure.repeated:
            return (
                Verdict.FAIL,
                f"the candidate {failure.kind} again after a good start, the baseline did not: {failure.cause}",
            )
        case "died" | "stalled":
            return (
                Verdict.ERROR,
                f"the candidate engine {failure.kind} after a good start; retry the run: {failure.cause}",
            )
        case _:
            return Verdict.ERROR, failure.cause


def _mismatch(arm: ArmRecord) -> str:
    if arm.effective is None:
        return ""
    return "; ".join(observation.sentence for observation in mismatches(compare(arm.plan, arm.effective)))


def _changed(baseline: ArmRecord, candidate: ArmRecord) -> tuple[Observation, ...]:
    if baseline.effective is None or candidate.effective is None:
        return ()
    return changed(compare(baseline.plan, baseline.effective), compare(candidate.plan, candidate.effective))


def _doubts(baseline: ArmRecord, candidate: ArmRecord) -> Iterator[str]:
    """A note for each setting of the change that could not be verified."""
    for row in _changed(baseline, candidate):
        if row.agrees is None:
            yield f"Not verified: {row.setting} {row.requested}, {row.reason}."


def _left_out(plan: Plan, candidate: ArmRecord) -> Iterator[str]:
    """A note for the rules that say nothing of the change in this run, and why it was run on that engine."""
    engine = plan.candidate.engine
    if engine != "vllm":
        yield f"Both arms ran on the {engine} engine: {plan.engine_reason}."
    yield from silences(plan, candidate)


def _noise(plan: Plan, baseline: ArmRecord, control: ArmRecord | None) -> Noise:
    if control is None or not control.complete:
        return Noise()
    basis = Basis(confidence=1 - plan.policy.alpha)
    return noise_between(baseline, control, basis, parts=parts_of(plan))


def _findings(
    plan: Plan, baseline: ArmRecord, candidate: ArmRecord, noise: Noise
) -> tuple[tuple[Finding, ...], tuple[Delta, ...]]:
    """Every rule wherever it has to be answered, and every delta, held against the first rule that speaks of it."""
    applied = applications(plan, baseline, candidate)
    basis = Basis(
        confidence=1 - plan.policy.alpha,
        speed_noise=speed_noise(noise),
        launches=plan.suite.launches,
        hypotheses=max(1, sum(application.rule.severity == "block" for application in applied)),
    )
    samples = samples_between(baseline, candidate, parts=parts_of(plan))
    known = {sample.place.key: sample for sample in samples}
    weighed = [_weighed(application, known.get(application.key), noise, basis) for application in applied]
    findings = [
        finding_of(
            one.application,
            one.delta,
            one.bound,
            baseline,
            candidate,
            proven=proven,
            waiver=waiver_of(one.application.rule.metric, plan.waivers),
        )
        for one, proven in zip(weighed, _proven(weighed, plan.policy.alpha), strict=True)
    ]
    ruled = {one.application.key: one.delta for one in reversed(weighed)}
    deltas = (ruled.get(sample.place.key) or delta_of(sample, basis) for sample in samples)
    return tuple(_one_for_the_worst(findings)), tuple(deltas)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weighed:
    """A rule where it applies, with its limit there and what was measured."""

    application: Application
    bound: float | None
    delta: Delta | None

    @property
    def harm_p(self) -> float | None:
        """The p-value that enters the family; None: a rule that only warns, or without a test."""
        return self.delta.harm_p if self.delta and self.application.rule.severity == "block" else None


def _weighed(application: Application, sample: Sample | None, noise: Noise, basis: Basis) -> _Weighed:
    bound = bound_of(application, sample, noise)
    delta = None if sample is None else delta_of(sample, basis, bound=bound)
    return _Weighed(application=application, bound=bound, delta=delta)


def _proven(weighed: Sequence[_Weighed], alpha: float) -> list[bool | None]:
    """For each, whether Holm's step-down over all that block upholds the harm; None outside that family."""
    upheld = iter(holm([one.harm_p for one in weighed if one.harm_p is not None], alpha=alpha))
    return [None if one.harm_p is None else next(upheld) for one in weighed]


def _one_for_the_worst(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, of a rule on the worst task only that task's."""
    for (rule, _), same in groupby(findings, key=lambda finding: (finding.rule, finding.mode)):
        if rule.group == WORST:
            yield worst_of(list(same))
        else:
            yield from same


def _silent(findings: Iterable[Finding]) -> tuple[str, ...]:
    """What the rules that block leave unsaid. Speed and room alone pass nothing: a broken engine may be fast."""
    kinds = {METRICS[finding.metric].kind for finding in findings if finding.rule.severity == "block"}
    if not kinds:
        return (NOTHING_APPLIES,)
    return () if kinds - {"speed", "capacity"} else (NO_QUALITY,)


def _verdict(findings: Iterable[Finding], coverage_gaps: Sequence[str]) -> Verdict:
    """A proven regression stands whatever else is missing; a PASS needs everything."""
    outcomes = {finding.outcome for finding in findings if finding.rule.severity == "block"}
    if Outcome.REGRESSED in outcomes:
        return Verdict.FAIL
    if Outcome.ERRORED in outcomes:
        return Verdict.ERROR
    if coverage_gaps or outcomes & {Outcome.NOT_EXERCISED, Outcome.MISSING}:
        return Verdict.INVALID
    if Outcome.INCONCLUSIVE in outcomes:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS


def _report(
    plan: Plan,
    arms: Mapping[Role, ArmRecord],
    verdict: Verdict,
    sentence: str,
    *,
    findings: tuple[Finding, ...] = (),
    deltas: tuple[Delta, ...] = (),
    noise: Noise = Noise(),  # noqa: B008 - frozen
    notes: tuple[str, ...] = (),
) -> Report:
    settings = tuple(
        SettingRow(arm=role, **asdict(observation))
        for role, arm in arms.items()
        if role != "control" and arm.effective is not None
        for observation in compare(arm.plan, arm.effective)
    )
    plans = {"baseline": plan.baseline, "candidate": plan.candidate}
    engines = [arm.engine for role in ("candidate", "baseline") if (arm := arms.get(role)) and arm.engine]
    broken_off = tuple(
        f"The {arm.role} ended early: {arm.failure.cause}" for arm in arms.values() if arm.failure is not None
    )
    left_out = tuple(
        f"{probe} did not run: {reason}" for arm in arms.values() for probe, reason in arm.skipped
    )
    cut_short = tuple(
        f"{stop.suite} ({stop.mode}) was ended after batch {stop.batches}: {stop.reason}"
        for arm in arms.values()
        for stop in arm.stops
    )
    return Report(
        verdict=verdict, sentence=sentence, findings=findings, deltas=deltas, noise=noise, settings=settings,
        requested={role: arm.config.model_dump(mode="json", exclude_none=True) for role, arm in plans.items()},
        effective={role: arm.effective.document for role, arm in arms.items() if arm.effective is not None},
        waivers=_applied(plan, findings),
        engine=engines[0] if engines else None, notes=(*dict.fromkeys((*broken_off, *left_out, *cut_short)), *notes),
    )  # fmt: skip


def _applied(plan: Plan, findings: Iterable[Finding]) -> tuple[Waiver, ...]:
    """The waivers that excused a rule."""
    metrics = dict.fromkeys(finding.metric for finding in findings if finding.outcome is Outcome.WAIVED)
    return tuple(waiver for metric in metrics if (waiver := waiver_of(metric, plan.waivers)) is not None)
