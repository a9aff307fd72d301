"""Paired binary items."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from gatekeeper.stats.binary import mcnemar_exact, paired_difference_interval, score_statistic


def restricted_log_likelihood(q_lost: float, *, lost: int, gained: int, n: int, d: float) -> float:
    p_gained = q_lost + d
    concordant = 1 - q_lost - p_gained
    terms = [(lost, q_lost), (gained, p_gained), (n - lost - gained, concordant)]
    return sum(k * math.log(p) if p > 0 else (-math.inf if k else 0.0) for k, p in terms)


@pytest.mark.parametrize(("lost", "gained", "p"), [(0, 0, 1.0), (5, 0, 1 / 32), (0, 5, 1.0), (3, 1, 5 / 16)])
def test_mcnemar_counts_the_upper_binomial_tail(lost: int, gained: int, p: float) -> None:
    assert mcnemar_exact(lost=lost, gained=gained) == pytest.approx(p)


@pytest.mark.parametrize(("lost", "gained", "n"), [(12, 43, 100), (1, 0, 44), (9, 2, 50), (0, 3, 30)])
@pytest.mark.parametrize("d", [-0.3, -0.02, 0.0, 0.1, 0.25])
def test_score_statistic_uses_the_restricted_maximum_likelihood_estimate(
    lost: int, gained: int, n: int, d: float
) -> None:
    lowest, highest = max(0.0, -d), (1 - d) / 2
    best = minimize_scalar(
        lambda q: -restricted_log_likelihood(q, lost=lost, gained=gained, n=n, d=d),
        bounds=(lowest, highest),
        method="bounded",
        options={"xatol": 1e-12},
    )
    variance = n * (2 * best.x + d - d * d)
    expected = (gained - lost - n * d) / math.sqrt(variance)
    assert score_statistic(lost=lost, gained=gained, n=n, difference=d) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("lost", "gained", "n"), [(12, 43, 100), (1, 0, 44), (9, 2, 50), (60, 0, 61)])
def test_each_bound_is_where_the_score_statistic_meets_its_quantile(lost: int, gained: int, n: int) -> None:
    interval = paired_difference_interval(lost=lost, gained=gained, n=n, confidence=0.95)
    at_lower = score_statistic(lost=lost, gained=gained, n=n, difference=interval.lower)
    at_upper = score_statistic(lost=lost, gained=gained, n=n, difference=interval.upper)
    assert (at_lower, at_upper) == (pytest.approx(1.644854, abs=1e-5), pytest.approx(-1.644854, abs=1e-5))


def test_no_discordant_pair_still_bounds_the_difference() -> None:
    interval = paired_difference_interval(lost=0, gained=0, n=44, confidence=0.975)
    z2 = 1.959964**2
    assert interval.upper == pytest.approx(z2 / (44 + z2), rel=1e-5)
    assert interval.lower == -interval.upper
    assert interval.estimate == 0


def test_losing_every_item_ends_at_minus_one_without_a_nan() -> None:
    interval = paired_difference_interval(lost=10, gained=0, n=10, confidence=0.95)
    assert (interval.estimate, interval.lower) == (-1, -1)
    assert -1 < interval.upper < 0


@pytest.mark.parametrize(("lost", "gained", "n"), [(0, 0, 0), (3, 3, 5), (-1, 0, 5)])
def test_impossible_counts_are_refused(lost: int, gained: int, n: int) -> None:
    with pytest.raises(ValueError, match=r"at least one item|counts must satisfy"):
        paired_difference_interval(lost=lost, gained=gained, n=n, confidence=0.95)


@pytest.mark.parametrize(("n", "flip_rate", "d"), [(100, 0.1, -0.05), (300, 0.09, -0.02), (300, 0.2, 0.0)])
def test_each_score_bound_covers_the_truth_at_its_one_sided_confidence(
    n: int, flip_rate: float, d: float
) -> None:
    rng = np.random.default_rng(7)
    probabilities = [(flip_rate - d) / 2, (flip_rate + d) / 2, 1 - flip_rate]
    samples, repeats = np.unique(rng.multinomial(n, probabilities, size=4000), axis=0, return_counts=True)
    bounds = [
        paired_difference_interval(lost=int(s[0]), gained=int(s[1]), n=n, confidence=0.95) for s in samples
    ]
    lower_holds = np.average([b.lower <= d for b in bounds], weights=repeats)
    upper_holds = np.average([b.upper >= d for b in bounds], weights=repeats)
    assert 0.93 < lower_holds < 0.975
    assert 0.93 < upper_holds < 0.975
