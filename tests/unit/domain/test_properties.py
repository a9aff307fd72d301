"""What holds for every verdict, whatever was measured."""

from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.basis import Basis
from gatekeeper.domain.delta import deltas_between
from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Measurement, TokenTrace
from gatekeeper.domain.verdict import Delta, Verdict
from tests.unit.domain.test_judge import arms_of, plan_of
from tests.unit.domain.test_looks import ACCURACY, KL, SUITE
from tests.unit.domain.test_looks import arms_of as arms_with_looks
from tests.unit.domain.test_looks import plan_of as plan_with_looks

assert SUITE.stop_early
EXAMPLES = settings(max_examples=20, deadline=None)
MIRRORED = ("accuracy", "choice_probability", "decode_nll")
"""Differences; KL and agreement compare two distributions and have no sign, speed and capacity are ratios."""


def by_place(deltas: tuple[Delta, ...]) -> dict[tuple[str, str, str], Delta]:
    return {(delta.metric, delta.mode, delta.group): delta for delta in deltas}


def without(arm: ArmRecord, *, suite: str) -> ArmRecord:
    """The arm as if a probe had yielded nothing."""
    return replace(
        arm,
        measurements=tuple(m for m in arm.measurements if m.suite != suite),
        traces=tuple(t for t in arm.traces if t.suite != suite),
    )


@EXAMPLES
@given(st.floats(0.01, 0.4), st.integers(0, 20), st.integers(0, 20))
def test_swapping_the_arms_mirrors_every_difference_and_inverts_every_ratio(
    shift: float, lost: int, gained: int
) -> None:
    arms = arms_of(plan_of(), shift=shift, lost=lost, gained=gained)
    basis = Basis(confidence=0.95, speed_noise={("throughput_ratio", "cold", "all"): (0.05,)})
    there = by_place(deltas_between(arms["baseline"], arms["candidate"], basis))
    back = by_place(deltas_between(arms["candidate"], arms["baseline"], basis))
    assert there.keys() == back.keys()
    for place, delta in there.items():
        other = back[place]
        if delta.metric in MIRRORED:
            assert_close(delta.estimate, -other.estimate)
            assert_close(delta.lower, None if other.upper is None else -other.upper)
        if delta.metric in ("throughput_ratio", "kv_capacity_ratio"):
            assert_close(delta.estimate, 1 / other.estimate)
            assert_close(delta.lower, None if other.upper is None else 1 / other.upper)


def assert_close(value: float | None, expected: float | None) -> None:
    assert value is not None
    assert expected is not None
    assert abs(value - expected) <= 1e-9 * max(1.0, abs(expected))


@EXAMPLES
@given(st.data(), st.sampled_from(["item", "token", "top"]), st.sampled_from(["baseline", "candidate"]))
def test_no_verdict_is_pass_when_a_value_is_not_a_number(data: st.DataObject, what: str, role: Any) -> None:
    plan = plan_of()
    arms = arms_of(plan)
    assert judge(plan, arms).verdict is Verdict.PASS
    broken = {**arms, role: with_nothing_at(arms[role], what, data)}
    assert judge(plan, broken).verdict is not Verdict.PASS


def with_nothing_at(arm: ArmRecord, what: str, data: st.DataObject) -> ArmRecord:
    """The arm with one value that was not finite, which is stored as none with its reason."""
    if what == "item":
        rows = [m for m in arm.measurements if m.suite == "accuracy"]
        victim = data.draw(st.sampled_from(rows))
        broken: Measurement = replace(victim, value=None, reason="the engine returned nan")
        return replace(arm, measurements=tuple(broken if m is victim else m for m in arm.measurements))
    trace = data.draw(st.sampled_from(arm.traces))
    position = data.draw(st.integers(0, len(trace.token_ids) - 1))
    return replace(arm, traces=tuple(holed(t, what, position) if t is trace else t for t in arm.traces))


def holed(trace: TokenTrace, what: str, position: int) -> TokenTrace:
    if what == "token":
        logprobs = [None if i == position else value for i, value in enumerate(trace.token_logprobs)]
        return replace(trace, token_logprobs=logprobs)
    rows = [[None, *row[1:]] if i == position else row for i, row in enumerate(trace.top_logprobs)]
    return replace(trace, top_logprobs=rows)


@EXAMPLES
@given(st.sampled_from(["accuracy", "fidelity"]), st.sampled_from(["baseline", "candidate"]))
def test_no_verdict_is_pass_when_a_rule_has_no_data(suite: str, role: Any) -> None:
    plan = plan_of()
    arms = arms_of(plan)
    assert judge(plan, {**arms, role: without(arms[role], suite=suite)}).verdict is not Verdict.PASS


@settings(max_examples=6, deadline=None)
@given(
    st.floats(0, 0.3), st.floats(0, 0.2), st.floats(0, 0.2), st.permutations(range(4)), st.permutations(range(12))
)  # fmt: skip
def test_the_order_of_the_batches_changes_no_estimate_at_the_full_number_of_items(
    damage: float, lost: float, gained: float, parts: list[int], batches: list[int]
) -> None:
    """Looks see other items first, so a p-value over the looks may differ; estimates and bounds at the end do not."""
    assume(parts != sorted(parts) or batches != sorted(batches))
    plan = plan_with_looks(ACCURACY, KL)
    arms = arms_with_looks(plan, lost=lost, gained=gained, damage=damage)
    renumbered = {role: in_other_order(arm, parts, batches) for role, arm in arms.items()}
    first, second = (by_place(judge(plan, these).deltas) for these in (arms, renumbered))
    for place, delta in first.items():
        for name in ("estimate", "lower", "upper", "n"):
            assert_close(getattr(delta, name), getattr(second[place], name))


def in_other_order(arm: ArmRecord, parts: list[int], batches: list[int]) -> ArmRecord:
    return replace(
        arm,
        measurements=tuple(replace(m, batch=batches[m.batch]) for m in arm.measurements),
        traces=tuple(replace(t, batch=parts[t.batch]) for t in arm.traces),
    )
