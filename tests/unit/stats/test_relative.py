"""The ratio of two paired proportions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from gatekeeper.stats.relative import ratio_lower_bound, ratio_statistic

Z = float(norm.ppf(0.95))
counts = st.integers(0, 60)


def test_at_ratio_one_it_is_mcnemars_z() -> None:
    z = ratio_statistic(both=50, lost=12, gained=5, n=90, ratio=1.0)
    assert z == pytest.approx((5 - 12) / math.sqrt(17))


@given(both=st.integers(1, 60), lost=st.integers(1, 30), gained=st.integers(1, 30), ratio=st.floats(0.6, 1.4))
def test_the_variance_is_the_constrained_maximum_likelihoods(
    both: int, lost: int, gained: int, ratio: float
) -> None:
    """Against a search over the one free probability, with the other two from the constraint."""
    n = both + lost + gained + 20
    answered = (both + lost + gained) / n

    def cells(q: float) -> tuple[float, float, float]:
        p_both = (answered - (1 + ratio) * q) / ratio
        return p_both, q, ratio * q - (1 - ratio) * p_both

    def loss(q: float) -> float:
        probabilities = cells(q)
        if min(probabilities) <= 0:
            return math.inf
        return -float(np.dot((both, lost, gained), np.log(probabilities)))

    low, high = max(0.0, (1 - ratio) * answered), answered / (1 + ratio)
    best = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    p_both, p_lost, p_gained = cells(best.x)
    variance = (1 - ratio) ** 2 * p_both + ratio**2 * p_lost + p_gained
    shift = both + gained - ratio * (both + lost)
    found = ratio_statistic(both=both, lost=lost, gained=gained, n=n, ratio=ratio)
    assert found == pytest.approx(shift / math.sqrt(n * variance), rel=1e-4, abs=1e-4)


@given(both=counts, lost=counts, gained=counts, neither=counts)
def test_the_bound_is_where_the_test_stops_rejecting(both: int, lost: int, gained: int, neither: int) -> None:
    table = {"both": both, "lost": lost, "gained": gained, "n": both + lost + gained + neither}
    if both + lost == 0:
        with pytest.raises(ValueError, match="no ratio"):
            ratio_lower_bound(**table, confidence=0.95)
        return
    bound = ratio_lower_bound(**table, confidence=0.95)
    estimate = (both + gained) / (both + lost)
    assert 0 <= bound <= estimate
    if both + gained:
        assert ratio_statistic(**table, ratio=bound) == pytest.approx(Z, abs=1e-6)
        assert bound < estimate


def test_agreement_everywhere_still_leaves_doubt() -> None:
    bound = ratio_lower_bound(both=200, lost=0, gained=0, n=300, confidence=0.95)
    assert bound == pytest.approx(200 / (200 + Z**2))


def test_more_items_of_the_same_kind_raise_the_bound() -> None:
    bounds = [
        ratio_lower_bound(both=70 * k, lost=5 * k, gained=4 * k, n=100 * k, confidence=0.95)
        for k in (1, 4, 16)
    ]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize(("n", "accuracy", "flips"), [(300, 0.76, 0.09), (1000, 0.6, 0.05)])
def test_at_the_limit_it_passes_one_change_in_twenty(n: int, accuracy: float, flips: float) -> None:
    """True ratio 0.97: the bound exceeds 0.97 in 5 % of samples, whatever the baseline's accuracy came out as."""
    drop = accuracy * 0.03
    lost, gained = (flips + drop) / 2, (flips - drop) / 2
    rng = np.random.default_rng(3)
    tables = rng.multinomial(n, [accuracy - lost, lost, gained, 1 - accuracy - gained], size=4_000)
    passed = [
        ratio_statistic(both=int(b), lost=int(x), gained=int(g), n=n, ratio=0.97) > Z for b, x, g, _ in tables
    ]
    assert np.mean(passed) == pytest.approx(0.05, abs=0.012)


def test_counts_that_are_no_table_are_refused() -> None:
    with pytest.raises(ValueError, match="at most n"):
        ratio_lower_bound(both=5, lost=5, gained=5, n=10, confidence=0.95)
