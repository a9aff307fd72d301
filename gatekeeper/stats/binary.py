"""Paired binary items: the same item, right or wrong, under the baseline and under the candidate.

Only the discordant pairs carry information about a difference: `lost` items were right under the baseline and wrong
under the candidate, `gained` items the other way round. The difference in accuracy, candidate - baseline, is
(gained - lost) / n.
"""

import math

from scipy.optimize import brentq
from scipy.stats import binomtest, norm

from gatekeeper.stats.interval import Interval, check_confidence

_INSIDE = 1e-12
"""How far inside its range a root is sought: at the very ends the score equation also has a root that means nothing."""


def mcnemar_exact(*, lost: int, gained: int) -> float:
    """One-sided p-value of the exact McNemar test for harm.

    H0: an item is at least as likely gained as lost. Given the number of discordant pairs, `lost` is then at most
    Binomial(lost + gained, 1/2) (McNemar 1947; exact form: Fay 2010, R Journal 2(1)). No discordant pair: p = 1.
    """
    _check_counts(lost, gained, lost + gained)
    if lost + gained == 0:
        return 1.0
    return float(binomtest(lost, lost + gained, 0.5, alternative="greater").pvalue)


def score_statistic(*, lost: float, gained: float, n: float, difference: float) -> float:
    """Tango's score statistic z for H0: candidate - baseline accuracy = `difference`; positive when the data lie above.

    z = (gained - lost - n d) / sqrt(n (2 q + d (1 - d))), with q the constrained maximum-likelihood estimate of the
    probability of a lost item (Tango 1998, Statistics in Medicine 17:891-908, eq. 5-7). Under H0 about standard normal.
    Real-valued counts are allowed, for planning. A zero variance gives 0 or a signed infinity.
    """
    shift = gained - lost - n * difference
    sd = _score_sd(lost, gained, n, difference)
    if sd == 0:
        return math.copysign(math.inf, shift) if shift else 0.0
    return shift / sd


def paired_difference_interval(*, lost: int, gained: int, n: int, confidence: float) -> Interval:
    """Tango's (1998) score interval for the difference in accuracy, candidate - baseline, over `n` paired items.

    Bounds are in accuracy units, within [-1, 1], and stay informative without discordant pairs: n agreeing items
    bound the difference by z**2 / (n + z**2) on both sides.
    Raises ValueError when n < 1 or lost + gained > n.
    """
    _check_counts(lost, gained, n)
    check_confidence(confidence)
    if n < 1:
        raise ValueError("a paired difference needs at least one item")
    z = float(norm.ppf(confidence))
    upper_of_mirror = _upper_bound(gained, lost, n, z)
    return Interval(
        estimate=(gained - lost) / n,
        lower=-upper_of_mirror,
        upper=_upper_bound(lost, gained, n, z),
        confidence=confidence,
    )


def _upper_bound(lost: int, gained: int, n: int, z: float) -> float:
    estimate = (gained - lost) / n
    if z == 0 or gained == n:
        return estimate

    def excess(difference: float) -> float:
        return gained - lost - n * difference + z * _score_sd(lost, gained, n, difference)

    return float(brentq(excess, estimate + _INSIDE, 1.0, xtol=1e-13))


def _score_sd(lost: float, gained: float, n: float, d: float) -> float:
    a = 2 * n
    b = (2 * n + lost - gained) * d - lost - gained
    c = -lost * d * (1 - d)
    q_lost = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    return math.sqrt(max(n * (2 * q_lost + d * (1 - d)), 0.0))


def _check_counts(lost: int, gained: int, n: int) -> None:
    if lost < 0 or gained < 0 or lost + gained > n:
        raise ValueError(
            f"counts must satisfy 0 <= lost, gained and lost + gained <= n; got {lost}, {gained}, {n}"
        )
