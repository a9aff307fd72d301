"""Looking as often as one likes, without knowing how many items will come: e-values and confidence sequences.

An e-value is the capital of someone who bets against H0 at fair odds, starting with 1. Under H0 it is a nonnegative
supermartingale, so it ever reaches 1 / alpha with probability at most alpha (Ville 1939; Ramdas, Grunwald, Vovk and
Shafer 2023, Statistical Science 38:576-601): one may stop at any moment and reject when it is that large. An anytime
p-value is 1 / (largest e-value so far). Where the largest number of items is known, `sequential` needs fewer items.

All capital here is a fixed mixture of bets, so it depends on what was seen and not on the order (Robbins 1970, Ann.
Math. Stat. 41:1397-1409; Waudby-Smith and Ramdas 2024, JRSS-B 86:1-27, sec. 4-5).
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betaln, expit, logsumexp
from scipy.stats import beta

from gatekeeper.stats.interval import Interval, check_confidence

_STAKES = expit(np.linspace(-6.0, 4.0, 41))
"""Shares of the capital at risk, 0.25 % to 98 %: small stakes find small effects, large ones large effects fast."""

_LARGEST_LOG = 700.0
"""exp of more overflows; a log e-value is cut here, far beyond any 1 / alpha."""


def harm_e_value(*, lost: int, gained: int) -> float:
    """E-value against "a discordant pair is at least as likely gained as lost", on the pairs seen so far.

    The likelihood ratio of P(lost) uniform on (1/2, 1) against 1/2. Raises ValueError on negative counts.
    """
    if lost < 0 or gained < 0:
        raise ValueError(f"counts cannot be negative; got {lost}, {gained}")
    log_mixture = math.log(2) + float(betaln(lost + 1, gained + 1) + beta.logsf(0.5, lost + 1, gained + 1))
    return math.exp(min(log_mixture + (lost + gained) * math.log(2), _LARGEST_LOG))


def non_inferiority_e_value(*, lost: int, gained: int, n: int, margin: float) -> float:
    """E-value against "the accuracy drop is at least `margin`" (0 <= margin < 1), on `n` paired items so far."""
    if min(lost, gained, n - lost - gained) < 0:
        raise ValueError(f"counts must be nonnegative and add up; got {lost}, {gained}, {n}")
    differences = np.repeat([-1.0, 0.0, 1.0], [lost, n - lost - gained, gained])
    return mean_greater_e_value(differences, lowest=-1.0, threshold=-margin)


def mean_greater_e_value(values: npt.ArrayLike, *, lowest: float, threshold: float) -> float:
    """E-value against H0: mean <= `threshold`, for independent `values` (shape (n,)) that cannot lie below `lowest`.

    With y = (value - lowest) / (threshold - lowest), whose mean under H0 is at most 1, a stake c of the capital turns
    into c * y. No upper limit is needed: that KL exceeds its limit can be shown for unbounded KL. Clustered items enter
    as one mean per document. Raises ValueError on a value that is not finite or below `lowest`, and on a threshold that
    is not above `lowest`.
    """
    x = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(x).all() and (x >= lowest).all()):
        raise ValueError("values must be finite and not below the lowest possible one")
    if not threshold > lowest:
        raise ValueError("the threshold must lie above the lowest possible value")
    return math.exp(min(_log_e_value(x, lowest, threshold), _LARGEST_LOG))


def mean_confidence_sequence(
    values: npt.ArrayLike, *, lowest: float, highest: float, confidence: float
) -> Interval:
    """Bounds for the mean of independent values in [lowest, highest] that hold at every look at once.

    Each bound holds over all looks together with one-sided `confidence`: the thresholds whose e-value has not reached
    1 / (1 - confidence) remain. Clustered items enter as one mean per document.
    Raises ValueError without values and on values outside the range.
    """
    check_confidence(confidence)
    x = np.asarray(values, dtype=np.float64)
    if not (x.size and np.isfinite(x).all() and (x >= lowest).all() and (x <= highest).all()):
        raise ValueError("needs values, finite and within their range")
    return Interval(
        estimate=float(x.mean()),
        lower=_lower_bound(x, lowest, highest, confidence),
        upper=-_lower_bound(-x, -highest, -lowest, confidence),
        confidence=confidence,
    )


def _log_e_value(x: npt.NDArray[np.float64], lowest: float, threshold: float) -> float:
    y = (x - lowest) / (threshold - lowest)
    log_capitals = np.log1p(_STAKES[:, None] * (y - 1)).sum(axis=1)
    return float(logsumexp(log_capitals)) - math.log(_STAKES.size)


def _lower_bound(x: npt.NDArray[np.float64], lowest: float, highest: float, confidence: float) -> float:
    tiny = 1e-9 * (highest - lowest)

    def log_excess(threshold: float) -> float:
        return _log_e_value(x, lowest, threshold) + math.log(1 - confidence)

    if log_excess(lowest + tiny) < 0:
        return float(lowest)
    return float(brentq(log_excess, lowest + tiny, highest, xtol=tiny))
