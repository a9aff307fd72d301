"""Ratios of speed figures."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t, ttest_ind

from gatekeeper.stats.ratio import (
    launch_noise_factor,
    launch_noise_p,
    log_ratio_greater_p,
    log_ratio_interval,
    log_ratio_less_p,
    turns_estimate,
)

BASELINE = [107.0, 112.0, 104.0, 110.0]
CANDIDATE = [118.0, 125.0, 112.0, 122.0]


def test_the_estimate_is_the_ratio_of_geometric_means() -> None:
    expected = math.exp(np.log(CANDIDATE).mean() - np.log(BASELINE).mean())
    assert log_ratio_interval(BASELINE, CANDIDATE, confidence=0.95).estimate == pytest.approx(expected)


def test_the_unpaired_interval_is_welchs() -> None:
    reference = ttest_ind(np.log(CANDIDATE), np.log(BASELINE), equal_var=False)
    expected = np.exp(reference.confidence_interval(0.9))
    interval = log_ratio_interval(BASELINE, CANDIDATE, confidence=0.95)
    assert (interval.lower, interval.upper) == (pytest.approx(expected[0]), pytest.approx(expected[1]))
    assert log_ratio_greater_p(BASELINE, CANDIDATE, threshold=1.0) == pytest.approx(reference.pvalue / 2)


def test_taking_turns_removes_the_drift_that_rounds_share() -> None:
    drift = np.array([1.0, 1.3, 0.8, 1.1])
    alone = log_ratio_interval(BASELINE * drift, CANDIDATE * drift, confidence=0.95)
    rounds = np.log(CANDIDATE) - np.log(BASELINE)
    in_turns = turns_estimate([rounds], unchanged=(0.01, -0.01)).interval(confidence=0.95)
    assert alone.lower < 1
    assert in_turns.lower > 1.05


def test_swapping_the_arms_inverts_the_ratio() -> None:
    there = log_ratio_interval(BASELINE, CANDIDATE, confidence=0.95)
    back = log_ratio_interval(CANDIDATE, BASELINE, confidence=0.95)
    assert (1 / back.upper, 1 / back.lower) == (pytest.approx(there.lower), pytest.approx(there.upper))


@pytest.mark.parametrize("threshold", [0.9, 1.0, 1.05, 1.1, 1.13, 1.2, 1.4])
def test_p_values_and_bounds_tell_the_same_story(threshold: float) -> None:
    unpaired = log_ratio_interval(BASELINE, CANDIDATE, confidence=0.95)
    args = {"threshold": threshold}
    assert (log_ratio_greater_p(BASELINE, CANDIDATE, **args) < 0.05) == (unpaired.lower > threshold)
    assert (log_ratio_less_p(BASELINE, CANDIDATE, **args) < 0.05) == (unpaired.upper < threshold)


def test_figures_without_spread_give_a_point_and_certain_answers() -> None:
    interval = turns_estimate([[math.log(2)] * 3] * 2, unchanged=(0.0,)).interval(confidence=0.95)
    assert interval.lower == interval.upper == pytest.approx(2.0)
    assert log_ratio_interval([1.0, 1.0], [2.0, 2.0], confidence=0.95).lower == pytest.approx(2.0)
    assert log_ratio_greater_p([1.0, 1.0], [2.0, 2.0], threshold=1.8) == 0
    assert turns_estimate([[math.log(2)] * 2] * 2).less_p(threshold=1.8) == 1


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_figures_that_are_not_positive_and_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        log_ratio_interval(BASELINE, [120.0, bad], confidence=0.95)
    with pytest.raises(ValueError, match="positive and finite"):
        log_ratio_greater_p(BASELINE, CANDIDATE, threshold=bad)


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 rounds"):
        log_ratio_interval([1.0], [2.0, 2.1], confidence=0.95)


def test_two_launches_bound_the_noise_of_a_third_at_the_nominal_level() -> None:
    rng = np.random.default_rng(5)
    first, second, third = rng.normal(0, 0.12, (3, 100_000))
    factor = launch_noise_factor([1.0], confidence=0.95)
    exceeded = third - first > np.log(factor) * np.abs(second - first)
    assert float(exceeded.mean()) == pytest.approx(0.0437, abs=0.003)
    p = [
        launch_noise_p(h, noise=[n])
        for h, n in zip((third - first)[:4000], np.abs(second - first)[:4000], strict=True)
    ]
    assert float(np.mean(np.array(p) <= 0.05)) < 0.055


def test_launches_that_agree_exactly_add_no_noise() -> None:
    assert launch_noise_factor([0.0], confidence=0.95) == 1.0
    assert (launch_noise_p(0.1, noise=[0.0]), launch_noise_p(-0.1, noise=[0.0])) == (0.0, 1.0)


def test_several_pairs_of_equal_launches_are_worth_a_degree_of_freedom_each() -> None:
    """Student's t at one-sided 95 %: 6.31 with one degree of freedom, 2.92 with two, 2.35 with three."""
    found = [math.log(launch_noise_factor([0.1] * count, confidence=0.95)) for count in (1, 2, 3)]
    assert found == pytest.approx([0.6314, 0.2920, 0.2353], abs=1e-4)
    with pytest.raises(ValueError, match="two launches of one configuration"):
        launch_noise_factor([], confidence=0.95)


# --- engines that take turns -----------------------------------------------------------------------------------------

PAIRS = [[0.02, 0.05, -0.01, 0.03], [0.06, 0.01, 0.04, 0.05]]
UNCHANGED = (0.01, -0.02)


def test_the_estimate_is_the_mean_of_whole_pairs_of_launches() -> None:
    lopsided = turns_estimate([[0.1], [0.0, 0.0, 0.0]], unchanged=UNCHANGED)
    assert lopsided.interval(confidence=0.95).estimate == pytest.approx(math.exp(0.05))


def test_the_width_comes_from_launches_pooled_with_pairs_of_equal_ones() -> None:
    means = [0.0225, 0.04]
    variance = (2 * 0.00875**2 + 0.01**2 + 0.02**2) / 3
    reach = t.ppf(0.95, 3) * math.sqrt(variance / 2)
    interval = turns_estimate(PAIRS, unchanged=UNCHANGED).interval(confidence=0.95)
    assert math.log(interval.lower) == pytest.approx(np.mean(means) - reach)
    assert math.log(interval.upper) == pytest.approx(np.mean(means) + reach)


def test_launches_that_agree_by_chance_leave_the_spread_of_rounds() -> None:
    wide = [[-0.1, 0.1], [0.1, -0.1]]
    interval = turns_estimate(wide, unchanged=(0.0, 0.0)).interval(confidence=0.95)
    assert math.log(interval.upper) == pytest.approx(t.ppf(0.95, 2) * math.sqrt(0.02 / 4))


def test_one_pair_without_any_of_equal_launches_has_no_bounds() -> None:
    alone = turns_estimate(PAIRS[:1])
    interval = alone.interval(confidence=0.95)
    assert (interval.lower, interval.upper) == (-math.inf, math.inf)
    assert (alone.greater_p(threshold=0.5), alone.less_p(threshold=2.0)) == (1.0, 1.0)
    assert math.isfinite(turns_estimate(PAIRS).interval(confidence=0.95).upper)


@pytest.mark.parametrize("threshold", [0.9, 0.97, 1.0, 1.02, 1.08, 1.15])
def test_p_values_and_bounds_of_turns_tell_the_same_story(threshold: float) -> None:
    estimate = turns_estimate(PAIRS, unchanged=UNCHANGED)
    interval = estimate.interval(confidence=0.95)
    assert (estimate.greater_p(threshold=threshold) < 0.05) == (interval.lower > threshold)
    assert (estimate.less_p(threshold=threshold) < 0.05) == (interval.upper < threshold)


@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.floats(-0.2, 0.2), max_size=3),
)
def test_swapping_the_sides_of_all_pairs_inverts_the_interval(
    pairs: list[list[float]], unchanged: list[float]
) -> None:
    there = turns_estimate(pairs, unchanged=unchanged)
    back = turns_estimate([[-x for x in pair] for pair in pairs], unchanged=[-u for u in unchanged])
    first, second = there.interval(confidence=0.9), back.interval(confidence=0.9)
    assert 1 / second.estimate == pytest.approx(first.estimate)
    if math.isfinite(first.upper):
        assert (1 / second.upper, 1 / second.lower) == (
            pytest.approx(first.lower),
            pytest.approx(first.upper),
        )
    assert there.less_p(threshold=1.1) == pytest.approx(back.greater_p(threshold=1 / 1.1))


@pytest.mark.parametrize("between", [0.0, 0.03])
def test_each_bound_of_turns_holds_at_its_level_whatever_the_noise_of_launches(between: float) -> None:
    """Two pairs of four rounds, two pairs of equal launches; exact but for the rounds' floor, which only widens."""
    rng = np.random.default_rng(11)
    missed = 0
    for _ in range(800):
        launches = rng.normal(0, between, 4)
        rounds = launches[:, None] + rng.normal(0, 0.06, (4, 4))
        estimate = turns_estimate(list(rounds[:2]), unchanged=rounds[2:].mean(axis=1))
        missed += estimate.interval(confidence=0.95).lower > 1
    assert 0.005 < missed / 800 < 0.07


def test_what_cannot_be_estimated_is_refused() -> None:
    for pairs in ([], [[0.1], []]):
        with pytest.raises(ValueError, match="needs a pair of launches"):
            turns_estimate(pairs)
    with pytest.raises(ValueError, match="finite"):
        turns_estimate([[math.nan]])
