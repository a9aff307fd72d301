"""E-values and confidence sequences."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from gatekeeper.stats.anytime import (
    harm_e_value,
    mean_confidence_sequence,
    mean_greater_e_value,
    non_inferiority_e_value,
)


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (7, 2), (3, 9), (20, 4)])
def test_the_harm_e_value_is_the_mixture_likelihood_ratio(lost: int, gained: int) -> None:
    mixture, _ = quad(lambda q: 2 * q**lost * (1 - q) ** gained, 0.5, 1)
    assert harm_e_value(lost=lost, gained=gained) == pytest.approx(mixture * 2 ** (lost + gained), rel=1e-6)


def test_e_values_stay_finite_at_any_size() -> None:
    assert 1e300 < harm_e_value(lost=100_000, gained=0) < math.inf
    assert harm_e_value(lost=0, gained=100_000) == 0
    assert 0 <= non_inferiority_e_value(lost=50_000, gained=0, n=100_000, margin=0.02) < 1e-6


def test_betting_against_a_true_null_wins_nothing_on_average() -> None:
    rng = np.random.default_rng(1)
    harm = [harm_e_value(lost=int(k), gained=50 - int(k)) for k in rng.binomial(50, 0.5, 3000)]
    flips = rng.multinomial(300, [0.055, 0.035, 0.91], size=1500)
    worse = [non_inferiority_e_value(lost=int(b), gained=int(c), n=300, margin=0.02) for b, c, _ in flips]
    mean = [mean_greater_e_value(rng.exponential(1.0, 30), lowest=0.0, threshold=1.0) for _ in range(1500)]
    assert max(np.mean(harm), np.mean(worse), np.mean(mean)) < 1.2


def test_looking_after_every_document_rarely_rejects_a_true_limit() -> None:
    rng = np.random.default_rng(2)
    rejected = 0
    for _ in range(300):
        kl = rng.exponential(1.0, 40)
        rejected += any(mean_greater_e_value(kl[:k], lowest=0.0, threshold=1.0) >= 20 for k in range(1, 41))
    assert rejected / 300 < 0.08


def test_a_candidate_far_beyond_the_limit_is_found_in_few_documents() -> None:
    assert mean_greater_e_value([0.30, 0.22, 0.41, 0.25], lowest=0.0, threshold=0.03) > 20


def test_the_confidence_sequence_tightens_around_the_mean() -> None:
    x = np.random.default_rng(3).beta(2, 8, 800)
    early = mean_confidence_sequence(x[:50], lowest=0.0, highest=1.0, confidence=0.95)
    late = mean_confidence_sequence(x, lowest=0.0, highest=1.0, confidence=0.95)
    assert early.lower < late.lower < 0.2 < late.upper < early.upper


def test_the_confidence_sequence_of_constants_keeps_a_one_sided_distance() -> None:
    zeros = mean_confidence_sequence(np.zeros(50), lowest=0.0, highest=1.0, confidence=0.95)
    assert (zeros.estimate, zeros.lower) == (0, 0)
    assert 0.05 < zeros.upper < 0.12


@pytest.mark.parametrize("values", [[], [0.2, math.nan], [1.2], [-0.1]])
def test_values_outside_their_range_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="within their range"):
        mean_confidence_sequence(values, lowest=0.0, highest=1.0, confidence=0.95)


def test_impossible_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        harm_e_value(lost=-1, gained=0)
    with pytest.raises(ValueError, match="add up"):
        non_inferiority_e_value(lost=3, gained=3, n=5, margin=0.02)
    with pytest.raises(ValueError, match="not below the lowest"):
        mean_greater_e_value([math.inf], lowest=0.0, threshold=1.0)
    with pytest.raises(ValueError, match="threshold must lie above"):
        mean_greater_e_value([0.5], lowest=0.0, threshold=0.0)
