"""Speed and capacity: ratios candidate / baseline of positive figures, one figure per round.

Figures of identical setups vary multiplicatively, so everything happens on logs and is exponentiated: a ratio of
1.05 and one of 1 / 1.05 are the same distance from "no change", and swapping the arms inverts the interval.

Rounds of one launch share what differs between launches (memory placement, page cache, clock), so they are not
independent: the launch is the unit, and noise between launches enters every bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import t

from gatekeeper.stats.interval import Interval, check_confidence

Floats = npt.NDArray[np.float64]
_FAR = 300.0
"""Log ratios are clipped here: far beyond any measurement, and their exponentials stay finite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _LogRatio:
    """Mean log ratio with its standard error and degrees of freedom."""

    mean: float
    standard_error: float
    df: float

    def interval(self, confidence: float) -> Interval:
        check_confidence(confidence)
        reach = float(t.ppf(confidence, self.df)) * self.standard_error
        lower, upper = _exp(self.mean - reach), _exp(self.mean + reach)
        return Interval(estimate=_exp(self.mean), lower=lower, upper=upper, confidence=confidence)

    @property
    def inverse(self) -> "_LogRatio":
        return _LogRatio(mean=-self.mean, standard_error=self.standard_error, df=self.df)

    def greater_p(self, threshold: float) -> float:
        if not (math.isfinite(threshold) and threshold > 0):
            raise ValueError("the threshold of a ratio must be positive and finite")
        distance = self.mean - math.log(threshold)
        if self.standard_error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(t.sf(distance / self.standard_error, self.df))


def log_ratio_interval(baseline: npt.ArrayLike, candidate: npt.ArrayLike, *, confidence: float) -> Interval:
    """Interval for the ratio of geometric means, candidate / baseline, from unpaired rounds (any two lengths >= 2).

    Welch's t on logs (Welch 1947, Biometrika 34:28-35). Where neither arm varies the interval is a point; where a bound
    exceeds every float it is infinite.
    Raises ValueError on fewer than two rounds in an arm and on figures that are not positive and finite.
    """
    return _unpaired(baseline, candidate).interval(confidence)


def log_ratio_greater_p(baseline: npt.ArrayLike, candidate: npt.ArrayLike, *, threshold: float) -> float:
    """One-sided p of H0: candidate / baseline <= `threshold`, unpaired; below 1 - confidence iff `lower` exceeds it.

    Without any spread p is 0 when the ratio exceeds the threshold and 1 otherwise.
    """
    return _unpaired(baseline, candidate).greater_p(threshold)


def log_ratio_less_p(baseline: npt.ArrayLike, candidate: npt.ArrayLike, *, threshold: float) -> float:
    """One-sided p of H0: candidate / baseline >= `threshold`, unpaired."""
    return _unpaired(candidate, baseline).greater_p(_inverse(threshold))


def launch_noise_factor(noise: Sequence[float], *, confidence: float) -> float:
    """The factor by which a ratio of two launches may be off, one-sided at `confidence`.

    `noise`: log ratios that pairs of launches of one configuration showed, each an independent draw with mean 0. With
    launch effects normal of one variance, the log ratio of candidate and baseline errs as these do, so its quotient by
    their root mean square is about Student's t with as many degrees of freedom (Student 1908). A baseline launch that
    is shared with the one pair makes 4.4 % of a nominal 5 %. Few launches say little; the factor is honest about it.
    """
    check_confidence(confidence)
    return math.exp(min(root_mean_square(noise) * float(t.ppf(confidence, len(noise))), _FAR))


def launch_noise_p(log_harm: float, *, noise: Sequence[float]) -> float:
    """One-sided p-value of a log ratio that lies `log_harm` beyond its bound, by the noise between launches alone."""
    spread = root_mean_square(noise)
    if spread == 0:
        return 0.0 if log_harm > 0 else 1.0
    return float(t.sf(log_harm / spread, len(noise)))


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnsEstimate:
    """The ratio of two configurations whose launches took turns, as two readings of the same mean log ratio.

    `between`: by the spread of whole pairs of launches; None while there is only one and no pair of equal launches.
    `within`: by the spread of rounds within pairs; None while every pair has one round. The wider one counts.
    """

    between: _LogRatio | None
    within: _LogRatio | None
    mean: float

    def interval(self, *, confidence: float) -> Interval:
        """The wider of both intervals; unbounded while nothing is known of the noise between launches."""
        check_confidence(confidence)
        if self.between is None:
            return Interval(estimate=_exp(self.mean), lower=-math.inf, upper=math.inf, confidence=confidence)
        known = [reading.interval(confidence) for reading in (self.between, self.within) if reading]
        lower, upper = min(one.lower for one in known), max(one.upper for one in known)
        return Interval(estimate=_exp(self.mean), lower=lower, upper=upper, confidence=confidence)

    def greater_p(self, *, threshold: float) -> float:
        """One-sided p of H0: the ratio is at most `threshold`; below 1 - confidence iff `lower` exceeds it."""
        if self.between is None:
            return 1.0
        return max(one.greater_p(threshold) for one in (self.between, self.within) if one)

    def less_p(self, *, threshold: float) -> float:
        """One-sided p of H0: the ratio is at least `threshold`."""
        if self.between is None:
            return 1.0
        return max(one.inverse.greater_p(_inverse(threshold)) for one in (self.between, self.within) if one)


def turns_estimate(pairs: Sequence[Sequence[float]], *, unchanged: Sequence[float] = ()) -> TurnsEstimate:
    """The estimate from pairs of launches that took turns.

    `pairs[i]`: the log ratio of every round of pair i. `unchanged`: the mean log ratios of pairs in which both launches
    had the baseline's configuration; their true mean is 0, so each gives a whole degree of freedom.

    The mean log ratio m_i of a pair is normal with variance tau^2 + sigma^2 / rounds, tau of the launches and sigma of
    the rounds, for changed and unchanged pairs alike. So the m_i have the pooled variance
    (sum (m_i - mean)^2 + sum u_j^2) / (pairs - 1 + unchanged), and the quotient is Student's t with that many degrees
    of freedom (Student 1908): exact for equal numbers of rounds. With few launches this variance can turn out too small
    by chance; the rounds within pairs, which have many degrees of freedom, then set the width.
    Raises ValueError without a pair, on a pair without rounds, and on values that are not finite.
    """
    logs = [np.asarray(pair, dtype=np.float64) for pair in pairs]
    known = np.asarray(unchanged, dtype=np.float64)
    if not logs or any(x.size == 0 for x in logs):
        raise ValueError("needs a pair of launches, each with a round")
    if not all(np.isfinite(x).all() for x in (*logs, known)):
        raise ValueError("log ratios must be finite")
    means = np.array([x.mean() for x in logs])
    mean, count = float(means.mean()), len(logs)
    df_between, df_within = count - 1 + known.size, sum(x.size - 1 for x in logs)
    squares = float(((means - mean) ** 2).sum() + (known**2).sum())
    within = sum(_variance(x) * (x.size - 1) for x in logs if x.size > 1)
    return TurnsEstimate(
        between=_LogRatio(mean=mean, standard_error=math.sqrt(squares / df_between / count), df=df_between)
        if df_between
        else None,
        within=_LogRatio(
            mean=mean,
            standard_error=math.sqrt(within / df_within * sum(1 / x.size for x in logs)) / count,
            df=df_within,
        )
        if df_within
        else None,
        mean=mean,
    )


def root_mean_square(noise: Sequence[float]) -> float:
    """The standard deviation of log ratios whose true mean is 0. Raises ValueError without any."""
    if not noise:
        raise ValueError("needs a log ratio of two launches of one configuration")
    return math.sqrt(sum(value**2 for value in noise) / len(noise))


def _unpaired(baseline: npt.ArrayLike, candidate: npt.ArrayLike) -> _LogRatio:
    logs = [_logs(baseline), _logs(candidate)]
    parts = [_variance(x) / x.size for x in logs]
    mean = float(logs[1].mean() - logs[0].mean())
    total = sum(parts)
    if total == 0:
        return _LogRatio(mean=mean, standard_error=0.0, df=1.0)
    shares = [part / total for part in parts]
    df = 1 / sum(share**2 / (x.size - 1) for share, x in zip(shares, logs, strict=True))
    return _LogRatio(mean=mean, standard_error=math.sqrt(total), df=df)


def _logs(figures: npt.ArrayLike) -> Floats:
    array = np.asarray(figures, dtype=np.float64)
    if array.ndim != 1 or array.size < 2:
        raise ValueError("a ratio needs at least 2 rounds in each arm")
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError("figures of a ratio must be positive and finite")
    return np.log(array)


def _variance(x: Floats) -> float:
    return float(x.var(ddof=1)) if np.ptp(x) > 0 else 0.0


def _inverse(threshold: float) -> float:
    return 1 / threshold if threshold else threshold


def _exp(log_ratio: float) -> float:
    return math.exp(log_ratio) if log_ratio < 700 else math.inf
