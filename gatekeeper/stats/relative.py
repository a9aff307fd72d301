"""The share of the baseline's right answers that the candidate keeps: the ratio of two paired proportions.

Cells of the paired table: `both` right, `lost` (baseline only), `gained` (candidate only), neither. The ratio is
(both + gained) / (both + lost). Both proportions are estimated, so "99 % of the baseline" is not a margin with a
known baseline in it.
"""

import math

from scipy.optimize import brentq
from scipy.stats import norm

from gatekeeper.stats.interval import check_confidence

_ROUNDING = 1e-15
"""Variances per item below this are 0 but for rounding."""


def ratio_statistic(*, both: int, lost: int, gained: int, n: int, ratio: float) -> float:
    """Score statistic z for H0: candidate = `ratio` x baseline; positive when the candidate keeps more than that.

    Each item contributes candidate - ratio x baseline, of mean 0 under H0. The statistic is their sum over its standard
    deviation at the constrained maximum-likelihood estimate q of the probability of a lost item: the variance per item
    is (1 + ratio) q - (1 - ratio) (both + lost + gained) / n (Nam and Blackwelder 2002, Statistics in Medicine
    21:689-699; Tang, Tang and Chan 2003, Statistics in Medicine 22:1217-1233). At ratio 1 it is McNemar's z.
    A zero variance gives 0 or a signed infinity.
    """
    right = both + lost + gained
    a = n * (1 + ratio)
    b = (1 - ratio * ratio) * (both + lost) + lost + gained
    c = lost * (1 - ratio) * right / n
    q_lost = (b + math.sqrt(max(b * b - 4 * a * c, 0.0))) / (2 * a)
    variance = (1 + ratio) * q_lost - (1 - ratio) * right / n
    shift = both + gained - ratio * (both + lost)
    if variance <= _ROUNDING:
        return math.copysign(math.inf, shift) if abs(shift) > 1e-9 else 0.0
    return shift / math.sqrt(n * variance)


def ratio_lower_bound(*, both: int, lost: int, gained: int, n: int, confidence: float) -> float:
    """The least ratio candidate / baseline that the score test does not reject: a bound at one-sided `confidence`.

    Without lost and gained items it is both / (both + z**2). Swapped arms give the inverse upper bound.
    Raises ValueError where the baseline has no right answer, and on counts that are not a table of `n` items.
    """
    check_confidence(confidence)
    if min(both, lost, gained) < 0 or both + lost + gained > n:
        raise ValueError(f"counts are at least 0 and at most n together; got {both}, {lost}, {gained}, {n}")
    if both + lost == 0:
        raise ValueError("without a right answer of the baseline there is no ratio to it")
    z = float(norm.ppf(confidence))
    estimate = (both + gained) / (both + lost)
    if estimate == 0 or z == 0:
        return estimate

    def excess(ratio: float) -> float:
        return ratio_statistic(both=both, lost=lost, gained=gained, n=n, ratio=ratio) - z

    return float(brentq(excess, 1e-6 * estimate, estimate, xtol=1e-13))
