"""What a sample can and cannot show: the smallest detectable effect, and how many more items would decide.

These are planning figures. They assume that the true rates equal the present estimates (or the given flip rate).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, norm, t

from gatekeeper.stats.binary import score_statistic
from gatekeeper.stats.continuous import clustered_mean, mean_statistic
from gatekeeper.stats.interval import check_confidence

MOST_ITEMS = 1_000_000
"""Beyond this many additional items (or documents) a plan is no plan, and the answer is None."""

EXACT_ITEMS = 2_000
"""Up to here a number of items is found with the exact power of the test."""


def mcnemar_power(*, n: int, drop: float, flip_rate: float, alpha: float) -> float:
    """Chance that the exact one-sided McNemar test at `alpha` shows a true `drop` in accuracy with `n` paired items.

    Exact: averages over Binomial(n, flip_rate) discordant pairs, of which a share (1 + drop / flip_rate) / 2 are lost
    (Miettinen 1968, Biometrics 24:339-352, unconditional). A drop above `flip_rate` implies that many flips, all lost.
    """
    flips = max(flip_rate, drop)
    if flips <= 0:
        return 0.0
    discordant = np.arange(n + 1)
    critical = _critical_losses(n, alpha)
    reject = binom.sf(critical - 1, discordant, (1 + drop / flips) / 2)
    return float(binom.pmf(discordant, n, flips) @ reject)


@lru_cache(maxsize=64)
def _critical_losses(n: int, alpha: float) -> npt.NDArray[np.float64]:
    """For 0..n discordant pairs, the fewest lost ones that show harm; shape (n + 1,)."""
    critical: npt.NDArray[np.float64] = binom.isf(alpha, np.arange(n + 1), 0.5) + 1
    return critical


@lru_cache(maxsize=1024)
def smallest_detectable_drop(*, n: int, flip_rate: float, alpha: float, power: float = 0.8) -> float | None:
    """The smallest true drop in accuracy (0..1) that the exact McNemar test detects with probability `power`.

    `flip_rate` is the share of items expected to differ between the arms, in either direction. None when `n` items
    could not show even the loss of every answer. Raises ValueError unless n >= 1 and 0 <= flip_rate <= 1.
    """
    if n < 1 or not 0 <= flip_rate <= 1:
        raise ValueError("needs n >= 1 and a flip rate between 0 and 1")
    if mcnemar_power(n=n, drop=1.0, flip_rate=flip_rate, alpha=alpha) < power:
        return None
    undetected, detected = 0.0, 1.0
    while detected - undetected > 1e-6:
        middle = (undetected + detected) / 2
        if mcnemar_power(n=n, drop=middle, flip_rate=flip_rate, alpha=alpha) < power:
            undetected = middle
        else:
            detected = middle
    return detected


def items_to_detect(*, drop: float, flip_rate: float, alpha: float, power: float = 0.8) -> int | None:
    """The fewest paired items with which the exact McNemar test detects a true `drop` with probability `power`.

    None: more than `MOST_ITEMS`, or a drop of 0. An exact test's power falls back a little between its steps, so a few
    items less may do as well. Beyond `EXACT_ITEMS` by the normal approximation, near enough there.
    """
    if drop <= 0:
        return None
    reach = float(norm.ppf((1 - alpha, power)).sum())
    near = math.ceil(max(flip_rate, drop) * (reach / drop) ** 2)
    if near > EXACT_ITEMS:
        return near if near <= MOST_ITEMS else None
    more = _fewest(lambda more: mcnemar_power(n=1 + more, drop=drop, flip_rate=flip_rate, alpha=alpha), power)
    return None if more is None else 1 + more


def items_to_decide(
    *, lost: int, gained: int, n: int, margin: float, confidence: float, power: float = 0.8
) -> int | None:
    """How many MORE paired items make the rule conclusive with probability `power`, if the present rates are the truth.

    Conclusive means lower > -margin (Passed) or upper < 0 (Regressed) of the score interval. The statistics at the
    larger sample are the score statistics of the scaled-up counts; given what is already seen, they still vary with
    standard deviation sqrt(more / total) (conditional power; Jennison and Turnbull 2000, ch. 10). 0 when already
    conclusive, None when more than `MOST_ITEMS` would be needed.
    """
    check_confidence(confidence)
    if n < 1:
        raise ValueError("needs at least one item to extrapolate from")
    z = float(norm.ppf(confidence))

    def chance(more: int) -> float:
        total = n + more
        scaled = {"lost": lost * total / n, "gained": gained * total / n, "n": float(total)}
        above_margin = score_statistic(**scaled, difference=-margin)
        below_zero = -score_statistic(**scaled, difference=0.0)
        return _chance_beyond(z, above_margin, more / total) + _chance_beyond(z, below_zero, more / total)

    return _fewest(chance, power)


def items_to_decide_mean(
    values: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    limit: float,
    harm_from: float | None = None,
    confidence: float,
    power: float = 0.8,
) -> int | None:
    """How many MORE items, in more documents of the present average size, put the mean's interval wholly below `limit`
    or wholly above `harm_from` (default: `limit`) with probability `power`, if present mean and spread are the truth.

    The skewness counts as known too. 0 when already so, None when more than `MOST_ITEMS` documents would be needed.
    Errors as in `clustered_mean`.
    """
    check_confidence(confidence)
    m = clustered_mean(values, clusters)
    harm = limit if harm_from is None else harm_from
    if m.spread == 0:
        return 0 if m.mean < limit or m.mean > harm else None

    mirrored = replace(m, mean=-m.mean, skewness=-m.skewness)

    def chance(more: int) -> float:
        total = m.n_clusters + more
        z = float(t.ppf(confidence, total - 1))
        below = mean_statistic(mirrored, threshold=-limit, clusters=total)
        above = mean_statistic(m, threshold=harm, clusters=total)
        return _chance_beyond(z, below, more / total) + _chance_beyond(z, above, more / total)

    documents = _fewest(chance, power)
    return None if documents is None else math.ceil(documents * m.n_items / m.n_clusters)


def smallest_detectable_mean(
    values: npt.ArrayLike, clusters: npt.ArrayLike, *, limit: float, confidence: float, power: float = 0.8
) -> float:
    """The smallest true mean above `limit` whose lower bound exceeds `limit` with probability `power` at this spread.

    limit + (t_confidence + t_power) * standard error, the usual approximation to the noncentral t (Cohen 1988).
    In the units of the values. Errors as in `clustered_mean`.
    """
    check_confidence(confidence)
    m = clustered_mean(values, clusters)
    quantiles = t.ppf([confidence, power], m.n_clusters - 1).sum()
    return limit + float(quantiles) * m.spread / math.sqrt(m.n_clusters)


def _chance_beyond(z: float, statistic: float, share_to_come: float) -> float:
    if share_to_come == 0:
        return 1.0 if statistic > z else 0.0
    return float(norm.cdf((statistic - z) / math.sqrt(share_to_come)))


def _fewest(chance: Callable[[int], float], power: float) -> int | None:
    if chance(0) >= power:
        return 0
    enough = 1
    while chance(enough) < power:
        if enough > MOST_ITEMS:
            return None
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if chance(middle) >= power else (middle, enough)
    return enough
