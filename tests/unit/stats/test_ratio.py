"""Ratios of speed figures."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import ttest_ind

from gatekeeper.stats.interval import Interval
from gatekeeper.stats.ratio import (
    launch_noise_factor,
    launch_noise_p,
    log_ratio_greater_p,
    log_ratio_interval,
    log_ratio_less_p,
    paired_log_ratio_greater_p,
    paired_log_ratio_interval,
    paired_log_ratio_less_p,
)

BASELINE = [107.0, 112.0, 104.0, 110.0]
CANDIDATE = [118.0, 125.0, 112.0, 122.0]


def test_the_estimate_is_the_ratio_of_geometric_means() -> None:
    expected = math.exp(np.log(CANDIDATE).mean() - np.log(BASELINE).mean())
    assert log_ratio_interval(BASELINE, CANDIDATE, confidence=0.95).estimate == pytest.approx(expected)
    assert paired_log_ratio_interval(BASELINE, CANDIDATE, confidence=0.95).estimate == pytest.approx(expected)


def test_the_unpaired_interval_is_welchs() -> None:
    reference = ttest_ind(np.log(CANDIDATE), np.log(BASELINE), equal_var=False)
    expected = np.exp(reference.confidence_interval(0.9))
    interval = log_ratio_interval(BASELINE, CANDIDATE, confidence=0.95)
    assert (interval.lower, interval.upper) == (pytest.approx(expected[0]), pytest.approx(expected[1]))
    assert log_ratio_greater_p(BASELINE, CANDIDATE, threshold=1.0) == pytest.approx(reference.pvalue / 2)


def test_interleaving_removes_the_drift_that_rounds_share() -> None:
    drift = np.array([1.0, 1.3, 0.8, 1.1])
    unpaired = log_ratio_interval(BASELINE * drift, CANDIDATE * drift, confidence=0.95)
    paired = paired_log_ratio_interval(BASELINE * drift, CANDIDATE * drift, confidence=0.95)
    assert unpaired.lower < 1
    assert paired.lower > 1.05


@pytest.mark.parametrize("interval", [log_ratio_interval, paired_log_ratio_interval])
def test_swapping_the_arms_inverts_the_ratio(interval: Callable[..., Interval]) -> None:
    there = interval(BASELINE, CANDIDATE, confidence=0.95)
    back = interval(CANDIDATE, BASELINE, confidence=0.95)
    assert (1 / back.upper, 1 / back.lower) == (pytest.approx(there.lower), pytest.approx(there.upper))


@pytest.mark.parametrize("threshold", [0.9, 1.0, 1.05, 1.1, 1.13, 1.2, 1.4])
def test_p_values_and_bounds_tell_the_same_story(threshold: float) -> None:
    unpaired = log_ratio_interval(BASELINE, CANDIDATE, confidence=0.95)
    paired = paired_log_ratio_interval(BASELINE, CANDIDATE, confidence=0.95)
    args = {"threshold": threshold}
    assert (log_ratio_greater_p(BASELINE, CANDIDATE, **args) < 0.05) == (unpaired.lower > threshold)
    assert (log_ratio_less_p(BASELINE, CANDIDATE, **args) < 0.05) == (unpaired.upper < threshold)
    assert (paired_log_ratio_greater_p(BASELINE, CANDIDATE, **args) < 0.05) == (paired.lower > threshold)
    assert (paired_log_ratio_less_p(BASELINE, CANDIDATE, **args) < 0.05) == (paired.upper < threshold)


def test_figures_without_spread_give_a_point_and_certain_answers() -> None:
    interval = paired_log_ratio_interval([11523.0] * 3, [23046.0] * 3, confidence=0.95)
    assert interval.lower == interval.upper == pytest.approx(2.0)
    assert log_ratio_interval([1.0, 1.0], [2.0, 2.0], confidence=0.95).lower == pytest.approx(2.0)
    assert log_ratio_greater_p([1.0, 1.0], [2.0, 2.0], threshold=1.8) == 0
    assert paired_log_ratio_less_p([1.0, 1.0], [2.0, 2.0], threshold=1.8) == 1


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_figures_that_are_not_positive_and_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        log_ratio_interval(BASELINE, [120.0, bad], confidence=0.95)
    with pytest.raises(ValueError, match="positive and finite"):
        paired_log_ratio_greater_p(BASELINE, CANDIDATE, threshold=bad)


def test_too_few_or_unmatched_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 rounds"):
        log_ratio_interval([1.0], [2.0, 2.1], confidence=0.95)
    with pytest.raises(ValueError, match="one baseline and one candidate"):
        paired_log_ratio_interval([1.0, 1.1], [2.0, 2.1, 2.2], confidence=0.95)


def test_two_launches_bound_the_noise_of_a_third_at_the_nominal_level() -> None:
    rng = np.random.default_rng(5)
    first, second, third = rng.normal(0, 0.12, (3, 100_000))
    factor = launch_noise_factor(1.0, confidence=0.95)
    exceeded = third - first > np.log(factor) * np.abs(second - first)
    assert float(exceeded.mean()) == pytest.approx(0.0437, abs=0.003)
    p = [
        launch_noise_p(h, noise=n)
        for h, n in zip((third - first)[:4000], np.abs(second - first)[:4000], strict=True)
    ]
    assert float(np.mean(np.array(p) <= 0.05)) < 0.055


def test_launches_that_agree_exactly_add_no_noise() -> None:
    assert launch_noise_factor(0.0, confidence=0.95) == 1.0
    assert (launch_noise_p(0.1, noise=0.0), launch_noise_p(-0.1, noise=0.0)) == (0.0, 1.0)
