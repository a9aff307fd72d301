"""Means of skewed measurements clustered by document."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import ttest_1samp

from gatekeeper.stats.continuous import clustered_mean, mean_greater_p, mean_interval, mean_less_p

Floats = npt.NDArray[np.float64]


def documents(
    rng: np.random.Generator, n_documents: int, tokens: int = 32
) -> tuple[Floats, npt.NDArray[np.int_]]:
    """Token KL of mean 1: a gamma(2) document effect times exponential token noise."""
    effect = rng.gamma(2.0, 0.5, n_documents)
    values = effect[:, None] * rng.exponential(1.0, (n_documents, tokens))
    return values.ravel(), np.repeat(np.arange(n_documents), tokens)


def test_without_skewness_it_is_the_t_interval_over_document_means() -> None:
    values, clusters = np.array([1.0, 3.0, 2.0, 2.0, 4.0, 2.0]), np.array(["a", "a", "b", "b", "c", "c"])
    reference = ttest_1samp([2.0, 2.0, 3.0], 0.0)
    symmetric = mean_interval(np.array([1.0, 2.0, 3.0]), np.arange(3), confidence=0.95)
    expected = ttest_1samp([1.0, 2.0, 3.0], 0.0).confidence_interval(0.9)
    assert (symmetric.lower, symmetric.upper) == (pytest.approx(expected.low), pytest.approx(expected.high))
    m = clustered_mean(values, clusters)
    assert m.spread / math.sqrt(m.n_clusters) == pytest.approx(reference._standard_error)


def test_a_skewed_sample_gets_a_longer_arm_on_the_side_of_its_tail() -> None:
    interval = mean_interval(
        np.array([1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0, 4.0]), np.arange(8), confidence=0.95
    )
    assert interval.upper - interval.estimate > interval.estimate - interval.lower


def test_repeating_the_items_of_each_document_adds_no_evidence() -> None:
    values, clusters = documents(np.random.default_rng(1), 12, tokens=1)
    once = mean_interval(values, clusters, confidence=0.95)
    often = mean_interval(np.repeat(values, 50), np.repeat(clusters, 50), confidence=0.95)
    assert (often.lower, often.upper) == (pytest.approx(once.lower), pytest.approx(once.upper))


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_identical_values_give_a_point_and_certain_answers(value: float) -> None:
    values, clusters = np.full(40, value), np.arange(40) % 8
    interval = mean_interval(values, clusters, confidence=0.95)
    assert (interval.lower, interval.estimate, interval.upper) == (value, value, value)
    assert mean_greater_p(values, clusters, threshold=0.2) == 1
    assert mean_less_p(values, clusters, threshold=0.2) == 0
    assert mean_greater_p(values, clusters, threshold=value) == 1
    assert mean_less_p(values, clusters, threshold=value) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        mean_interval(np.array([0.1, bad, 0.2]), np.arange(3), confidence=0.95)
    with pytest.raises(ValueError, match="finite"):
        mean_less_p(np.array([0.1, 0.3, 0.2]), np.arange(3), threshold=bad)


def test_a_single_document_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two clusters"):
        mean_interval(np.array([0.1, 0.3, 0.2]), np.zeros(3), confidence=0.95)


@pytest.mark.parametrize("threshold", [0.6, 0.75, 0.9, 1.0, 1.2, 1.5, 2.0])
def test_p_values_and_bounds_tell_the_same_story(threshold: float) -> None:
    values, clusters = documents(np.random.default_rng(3), 16)
    interval = mean_interval(values, clusters, confidence=0.95)
    assert (mean_greater_p(values, clusters, threshold=threshold) < 0.05) == (interval.lower > threshold)
    assert (mean_less_p(values, clusters, threshold=threshold) < 0.05) == (interval.upper < threshold)


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1e150])
def test_extreme_scales_stay_finite(scale: float) -> None:
    values, clusters = documents(np.random.default_rng(3), 16)
    interval = mean_interval(values * scale, clusters, confidence=0.95)
    assert 0 < interval.lower / scale < interval.upper / scale < 3
    assert mean_greater_p(values * scale, clusters, threshold=-1e200) == pytest.approx(0, abs=1e-6)


def test_both_bounds_cover_a_skewed_mean_over_sixteen_documents() -> None:
    rng = np.random.default_rng(11)
    intervals = [mean_interval(*documents(rng, 16), confidence=0.95) for _ in range(1500)]
    assert np.mean([i.upper >= 1 for i in intervals]) > 0.925
    assert np.mean([i.lower <= 1 for i in intervals]) > 0.93
