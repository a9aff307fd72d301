"""Where a rule applies: the modes and groups in which it has to be answered, and its limit there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.engine_choice import left_out
from gatekeeper.domain.eviction import TopK, compresses_prompts_only, single_policies
from gatekeeper.domain.item_samples import tasks_of
from gatekeeper.domain.measurement import EVICTED_TOKENS, Mode
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.noise import floor_of
from gatekeeper.domain.plan import Plan, measured_modes
from gatekeeper.domain.policy import ALL, EACH, WORST, Rule
from gatekeeper.domain.sample import PairSample, Parts, Sample
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Noise


@dataclass(frozen=True, kw_only=True, slots=True)
class Application:
    """A rule in one mode and for one group: one hypothesis."""

    rule: Rule
    mode: Mode
    group: str = ALL

    @property
    def key(self) -> tuple[str, Mode, str]:
        """The sample that it speaks of."""
        return self.rule.metric, self.mode, self.group


def expected_modes(rule: Rule, modes: Sequence[Mode], suite: Suite) -> tuple[Mode, ...]:
    """The states in which a rule has to be answered, of those in which a candidate is measured.

    On speed, a rule that names no state speaks of requests that share nothing. One that compares lengths of context
    has no state in a suite of one length.
    """
    metric = METRICS[rule.metric]
    if metric.is_over_contexts and not suite.has_context_lengths:
        return ()
    wanted = rule.mode or ("cold" if metric.has_loads else None)
    return tuple(mode for mode in metric.modes_of(modes) if wanted in (None, mode))


def applications(plan: Plan, baseline: ArmRecord, candidate: ArmRecord) -> tuple[Application, ...]:
    """Every rule where it has to be answered."""
    measured = measured_modes(plan.suite, candidate.plan.config, candidate.effective)
    return tuple(
        Application(rule=rule, mode=mode, group=group)
        for rule in plan.policy.rules
        for mode in expected_modes(rule, measured, plan.suite)
        if says_nothing(plan, candidate, suite=METRICS[rule.metric].suite, mode=mode) is None
        for group in _groups(rule, baseline, candidate)
    )


def says_nothing(plan: Plan, candidate: ArmRecord, *, suite: str, mode: Mode) -> str | None:
    """Why what a suite measured in a mode is no evidence of the change; None where it is.

    Beside what is known beforehand, where an eviction policy alone changes what is computed: items of which nothing was
    evicted would have come out the same without it. Top-k evicts nothing and reads less.
    """
    reason = silent_beforehand(plan, suite=suite, mode=mode)
    eviction = plan.candidate.config.eviction
    reads_less = any(isinstance(part, TopK) for _, part in single_policies(eviction))
    if reason is not None or not _evicts_alone(plan) or reads_less:
        return reason
    idle = any(
        (exercise.suite, exercise.mode, exercise.counter, exercise.moved) == (suite, mode, EVICTED_TOKENS, 0)
        for exercise in candidate.exercises
    )
    return f"its items are so short that {eviction.policy} evicted nothing" if idle else None


def silent_beforehand(plan: Plan, *, suite: str, mode: Mode) -> str | None:
    """The same, as far as the plan shows: the engine, and tokens that are read before a policy compresses anything."""
    reason = left_out(plan.candidate.engine, suite=suite, mode=mode)
    eviction = plan.candidate.config.eviction
    if reason is None and mode == "prefill" and compresses_prompts_only(eviction) and _evicts_alone(plan):
        return f"its tokens are a part of the prompt, which {eviction.policy} compresses when it is over"
    return reason


def _evicts_alone(plan: Plan) -> bool:
    """Whether nothing but an eviction policy changes what is computed."""
    before, after = plan.baseline.config, plan.candidate.config
    return (before.quantization, before.engine_args) == (after.quantization, after.engine_args)


def silences(plan: Plan, candidate: ArmRecord) -> Iterator[str]:
    """A note for each rule and mode of which nothing is known, and why."""
    measured = measured_modes(plan.suite, candidate.plan.config, candidate.effective)
    for rule in plan.policy.rules:
        metric = METRICS[rule.metric]
        for mode in expected_modes(rule, measured, plan.suite):
            reason = says_nothing(plan, candidate, suite=metric.suite, mode=mode)
            if reason is not None:
                where = "" if mode == "cold" else f" in {mode} mode"
                yield f"{metric.title} does not apply{where}: {reason}."


def _groups(rule: Rule, baseline: ArmRecord, candidate: ArmRecord) -> tuple[str, ...]:
    """A task that only one of the arms has counts too, so that none gets lost."""
    if rule.group not in (EACH, WORST):
        return (rule.subset,)
    return tasks_of(METRICS[rule.metric], baseline, candidate) or (rule.group,)


def parts_of(plan: Plan) -> Parts:
    """The stretches of the decode and the context lengths that rules speak of."""
    rules = plan.policy.rules
    return Parts(
        positions={rule.decode_position for rule in rules if rule.decode_position is not None},
        contexts={rule.context for rule in rules if rule.context is not None},
    )


def bound_of(application: Application, sample: Sample | None, noise: Noise) -> float | None:
    """The metric's value at which the rule is just broken here, or None where what it depends on was not measured."""
    rule = application.rule
    match rule.form:
        case "at_most_noise_multiple":
            return noise_bound(rule, floor_of(noise, rule.metric, application.group))
        case "at_least_of_baseline":
            assert rule.at_least_of_baseline is not None  # it is the form
            if not isinstance(sample, PairSample) or sample.baseline == 0:
                return None
            return -(1 - rule.at_least_of_baseline) * sample.baseline
        case "max_drop" | "at_most" | "at_least":
            return rule.bound
        case _:
            assert_never(rule.form)


def noise_bound(rule: Rule, floor: float | None) -> float | None:
    """The limit of a rule that is stated as a multiple of the noise, of which `floor` was measured."""
    assert rule.at_most_noise_multiple is not None  # the caller looked at its form
    assert rule.limit_floor is not None  # they belong together
    return None if floor is None else max(rule.at_most_noise_multiple * floor, rule.limit_floor)
