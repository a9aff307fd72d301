"""Means of continuous per-item measurements (KL, NLL delta, score delta) whose items share documents.

Items of one document move together, so the document is the unit of evidence: `clusters` names the document of each
item, and sixteen documents of 128 tokens are sixteen observations, not 2,048.

Method. Each document contributes its linearised influence on the item mean (the cluster-robust variance of a ratio
mean; Cochran 1977, Sampling Techniques, ch. 6 and 9). KL is skewed, and an ordinary t interval over documents then
has an upper bound that is too low too often, the dangerous side of a gate. Hall's (1992, JRSS-B 54:221-228) monotone
cubic transformation removes the skewness from the t statistic; it is the closed form of the bootstrap-t, whose
coverage it matches, without random numbers. The sample skewness of so few documents is itself too small, so it carries
the factor 1 + 6 / n of Tasker and Stedinger (1986, J. Water Resour. Plann. Manage. 112:225-237). The coverage measured
against t, log t, bootstrap-t and BCa is in docs/decision.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import skew, t

from gatekeeper.stats.interval import Interval, check_confidence

_FAR = 1e50
"""Standardised distances are clipped here: p is 0 or 1 long before, and cubes stay finite."""

_ROUNDING = 1e-12
"""Documents that differ by less than this share of the largest value differ by rounding, and count as equal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusteredMean:
    """The mean over items and what its documents say about its spread.

    `spread` is the standard deviation of the documents' influences on the mean (units of the values), so the standard
    error is spread / sqrt(n_clusters); `skewness` is the bias-corrected skewness of those influences.
    """

    mean: float
    spread: float
    skewness: float
    n_clusters: int
    n_items: int


def clustered_mean(values: npt.ArrayLike, clusters: npt.ArrayLike) -> ClusteredMean:
    """Mean, spread and skewness of `values` (shape (n,)), grouped by the ids in `clusters` (shape (n,), any type).

    Raises ValueError on NaN or infinite values, on unequal lengths, and on fewer than two clusters: one document says
    nothing about how another would have moved.
    """
    x, ids = np.asarray(values, dtype=np.float64), np.asarray(clusters)
    if x.ndim != 1 or x.shape != ids.shape:
        raise ValueError("values and clusters must be one-dimensional and of equal length")
    if not np.isfinite(x).all():
        raise ValueError("values must be finite; a NaN or infinite measurement is a finding, not a number")
    labels, index = np.unique(ids, return_inverse=True)
    if labels.size < 2:
        raise ValueError("a mean over clusters needs at least two clusters")
    return _from_sums(x, index)


def _from_sums(x: npt.NDArray[np.float64], index: npt.NDArray[np.intp]) -> ClusteredMean:
    sizes = np.bincount(index)
    n = sizes.size
    if np.ptp(x) == 0:
        return ClusteredMean(mean=float(x[0]), spread=0.0, skewness=0.0, n_clusters=n, n_items=x.size)
    mean = float(x.mean())
    influences = np.bincount(index, weights=x - mean) / sizes.mean()
    scale = float(np.abs(influences).max())
    if scale <= _ROUNDING * float(np.abs(x).max()):
        return ClusteredMean(mean=mean, spread=0.0, skewness=0.0, n_clusters=n, n_items=x.size)
    standardised = influences / scale
    skewness = float(skew(standardised, bias=False)) * (1 + 6 / n)
    spread = scale * float(standardised.std(ddof=1))
    return ClusteredMean(mean=mean, spread=spread, skewness=skewness, n_clusters=n, n_items=x.size)


def mean_interval(values: npt.ArrayLike, clusters: npt.ArrayLike, *, confidence: float) -> Interval:
    """Interval for the mean over items, in the units of the values, from documents as independent observations.

    Where no document deviates from the mean (KL exactly 0 everywhere) the interval is that point.
    Errors as in `clustered_mean`.
    """
    check_confidence(confidence)
    m = clustered_mean(values, clusters)
    quantile = float(t.ppf(confidence, m.n_clusters - 1)) / math.sqrt(m.n_clusters)
    return Interval(
        estimate=m.mean,
        lower=m.mean - m.spread * _undo_skew_removal(quantile, m),
        upper=m.mean - m.spread * _undo_skew_removal(-quantile, m),
        confidence=confidence,
    )


def mean_greater_p(values: npt.ArrayLike, clusters: npt.ArrayLike, *, threshold: float) -> float:
    """One-sided p of H0: mean <= `threshold`; below 1 - confidence exactly where `mean_interval` has lower > threshold.

    Without any spread p is 0 when the mean exceeds the threshold and 1 otherwise. Errors as in `clustered_mean`.
    """
    if not np.isfinite(threshold):
        raise ValueError("the threshold must be finite")
    m = clustered_mean(values, clusters)
    if m.spread == 0:
        return 0.0 if m.mean > threshold else 1.0
    return float(t.sf(mean_statistic(m, threshold=threshold, clusters=m.n_clusters), m.n_clusters - 1))


def mean_statistic(m: ClusteredMean, *, threshold: float, clusters: int) -> float:
    """The t statistic of H0: mean <= `threshold`, its skewness removed, as `clusters` documents like these give it.

    Of a mean with a spread; the threshold may be infinite.
    """
    distance = float(np.clip((m.mean - threshold) / m.spread, -_FAR, _FAR))
    return math.sqrt(clusters) * _remove_skew(distance, replace(m, n_clusters=clusters))


def mean_less_p(values: npt.ArrayLike, clusters: npt.ArrayLike, *, threshold: float) -> float:
    """One-sided p of H0: mean >= `threshold`; below 1 - confidence exactly where upper < threshold."""
    mirrored: Any = -np.asarray(values, dtype=np.float64)
    return mean_greater_p(mirrored, clusters, threshold=-threshold)


def _remove_skew(w: float, m: ClusteredMean) -> float:
    """Hall's T(w) = w + a w^2 + a^2 w^3 / 3 + b with a = skewness / 3, b = skewness / (6 n); increasing in w."""
    x = m.skewness / 3 * w
    return w * (1 + x + x * x / 3) + m.skewness / (6 * m.n_clusters)


def _undo_skew_removal(y: float, m: ClusteredMean) -> float:
    """The w with T(w) = y: (cbrt(1 + 3 a (y - b)) - 1) / a, written so that a = 0 needs no case of its own."""
    shifted = y - m.skewness / (6 * m.n_clusters)
    root = float(np.cbrt(1 + m.skewness * shifted))
    return 3 * shifted / (root * root + root + 1)
