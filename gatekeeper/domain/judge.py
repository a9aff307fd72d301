"""The verdict: a pure function of the plan and of what was measured.

PASS needs every blocking rule to pass (an intersection-union test: no correction). FAIL holds the family-wise error
over all blocking rules at the policy's alpha (Holm). Anything that leaves the evidence silent about the change is
INVALID.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.delta import Basis, deltas_between
from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.findings import expected_modes, finding_of
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.noise import noise_between, speed_noise
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.sentence import no_gain, summary
from gatekeeper.domain.verdict import Delta, Finding, Noise, Outcome, Report, SettingRow, Verdict
from gatekeeper.stats.multiple import holm


def judge(plan: Plan, arms: Mapping[Role, ArmRecord]) -> Report:
    """Judge a run. Missing arms count as not measured; nothing is inferred from silence."""
    blocker = _blocker(arms)
    if blocker is not None:
        verdict, sentence = blocker
        return _report(plan, arms, verdict, f"{verdict}: {sentence}")
    baseline, candidate, control = arms["baseline"], arms["candidate"], arms.get("control")
    basis = Basis(
        confidence=1 - plan.policy.alpha,
        bounds={rule.metric: rule.bound for rule in plan.policy.rules},
        speed_noise={},
    )
    noise = noise_between(baseline, control, basis) if control is not None and control.complete else Noise()
    deltas = deltas_between(baseline, candidate, replace(basis, speed_noise=speed_noise(noise)))
    findings = _findings(plan, baseline, candidate, deltas)
    verdict = _verdict(findings, plan.coverage_gaps)
    notes = no_gain(deltas) if verdict is Verdict.PASS else ()
    if not noise.deltas:
        notes = (*notes, "The noise floor of this setup was not measured.")
    return _report(
        plan, arms, verdict, summary(verdict, findings, deltas, plan.coverage_gaps),
        findings=findings, deltas=deltas, noise=noise, notes=notes,
    )  # fmt: skip


def _blocker(arms: Mapping[Role, ArmRecord]) -> tuple[Verdict, str] | None:
    """What keeps the evidence from being weighed at all, most fundamental first."""
    baseline, candidate = arms.get("baseline"), arms.get("candidate")
    if baseline is None:
        return Verdict.ERROR, "no baseline was measured."
    if baseline.failure is not None:
        return Verdict.ERROR, f"the baseline engine {baseline.failure.kind}: {baseline.failure.cause}"
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


def _findings(
    plan: Plan, baseline: ArmRecord, candidate: ArmRecord, deltas: Sequence[Delta]
) -> tuple[Finding, ...]:
    """Every rule in every mode in which its metric is expected, Holm's step-down over the blocking ones."""
    found = {(delta.metric, delta.mode): delta for delta in deltas if delta.group == "all"}
    places = [(rule, mode) for rule in plan.policy.rules for mode in expected_modes(rule.metric, plan)]
    tested = [
        found[rule.metric, mode]
        for rule, mode in places
        if rule.severity == "block"
        and (rule.metric, mode) in found
        and found[rule.metric, mode].harm_p is not None
    ]
    rejected = holm([delta.harm_p for delta in tested if delta.harm_p is not None], alpha=plan.policy.alpha)
    proven = {(delta.metric, delta.mode) for delta, reject in zip(tested, rejected, strict=True) if reject}
    return tuple(
        finding_of(
            rule, mode, found.get((rule.metric, mode)), baseline, candidate,
            proven=(rule.metric, mode) in proven if rule.severity == "block" else None,
        )
        for rule, mode in places
    )  # fmt: skip


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
    skipped = tuple(
        f"{probe} did not run: {reason}" for arm in arms.values() for probe, reason in arm.skipped
    )
    return Report(
        verdict=verdict, sentence=sentence, findings=findings, deltas=deltas, noise=noise, settings=settings,
        requested={role: arm.config.model_dump(mode="json", exclude_none=True) for role, arm in plans.items()},
        effective={role: asdict(arm.effective) for role, arm in arms.items() if arm.effective is not None},
        engine=engines[0] if engines else None, notes=(*dict.fromkeys(skipped), *notes),
    )  # fmt: skip
