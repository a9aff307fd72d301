"""Looking after every batch: group-sequential tests where the largest number of items is known beforehand.

Each look spends a part of alpha, so that the chance of a wrong answer over all looks together stays at alpha. How much
each look may spend follows the Wang-Tsiatis (1987, Biometrics 43:193-200) family of boundaries, z_k >= c * t_k**(shape
- 1/2) at the fraction t_k of the items: shape 0.5 is Pocock's constant boundary, eager to stop; shape 0 is O'Brien and
Fleming's, which saves alpha for the last look.

The two questions get alpha each, because no truth makes both wrong (unless the margin is 0): "worse at all?" is asked
exactly, on discordant pairs (`harm_boundaries`, `harm_p`); "within the margin?" with the score interval at the look's
nominal confidence (`Looks.nominal_alphas`). Stopping for one can only lower the error rate of the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom, norm
from scipy.stats import t as student

from gatekeeper.stats.binary import score_statistic
from gatekeeper.stats.continuous import clustered_mean
from gatekeeper.stats.interval import check_confidence

Floats = npt.NDArray[np.float64]

DEFAULT_LOOKS = 12
DEFAULT_SHAPE = 0.375
"""For paired items. Why twelve looks and this shape: the trade-off curve in docs/decision.md."""

SHAPE_FOR_MEANS = 0.0
FEWEST_DOCUMENTS = 16
"""For means over documents: alpha is saved for the end and no look comes before so many documents, because the bounds
of few skewed documents are least exact at the small levels of early looks (measured in docs/decision.md)."""

NEGLIGIBLE_CHANCE = 0.01
"""Below this chance of a conclusive last look, going on is futile."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(160)
_FAR = 8.0
"""Standard deviations beyond which a normal distribution counts as empty."""

_LEVELS = np.geomspace(0.5, 1e-6, 270)
"""The levels, 5 % apart, among which a sequential exact p-value is found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Looks:
    """A computed Wang-Tsiatis design. Look k comes at `fractions[k]` of the items and has two equivalent readings.

    `nominal_alphas[k]`: the one-sided level at which an ordinary test or interval of look k is to be read (a repeated
    confidence interval; Jennison and Turnbull 1984). `shares_spent[k]`: the share of alpha spent up to look k, the
    error-spending function of Lan and DeMets (1983, Biometrika 70:659-663); the last is 1.
    """

    fractions: tuple[float, ...]
    shape: float
    alpha: float
    nominal_alphas: tuple[float, ...]
    shares_spent: tuple[float, ...]


def equal_looks(n_max: int, count: int = DEFAULT_LOOKS) -> tuple[int, ...]:
    """Item counts of `count` evenly spaced looks, the last at `n_max`; fewer where there are fewer items than looks."""
    if n_max < 1 or count < 1:
        raise ValueError("needs at least one item and one look")
    return tuple(sorted({math.ceil(n_max * k / count) for k in range(1, count + 1)}))


@lru_cache(maxsize=256)
def wang_tsiatis(fractions: tuple[float, ...], *, alpha: float, shape: float = DEFAULT_SHAPE) -> Looks:
    """The design for looks at `fractions` of the items (increasing, ending at 1) with one-sided error `alpha` in total.

    The constant c is found by recursive numerical integration (Armitage, McPherson and Rowe 1969; Jennison and
    Turnbull 2000, ch. 19). Raises ValueError on fractions that are not increasing within (0, 1] or do not end at 1.
    """
    check_confidence(1 - alpha)
    t = np.asarray(fractions)
    if not t.size or t[0] <= 0 or np.any(np.diff(t) <= 0) or t[-1] != 1:
        raise ValueError("look fractions must increase within (0, 1] and end at 1")

    def overspent(c: float) -> float:
        return float(_crossing_chances(t, c * t**shape).sum()) - alpha

    c = float(brentq(overspent, 0.0, _FAR, xtol=1e-10))
    spent = np.cumsum(_crossing_chances(t, c * t**shape)) / alpha
    spent[-1] = 1.0
    return Looks(
        fractions=fractions,
        shape=shape,
        alpha=alpha,
        nominal_alphas=tuple(float(a) for a in norm.sf(c * t ** (shape - 0.5))),
        shares_spent=tuple(float(s) for s in spent),
    )


@lru_cache(maxsize=256)
def price_of_looks(looks: Looks, *, power: float) -> float:
    """How many times as large an effect must be to be shown with `power` at some look, compared with one look alone.

    The square is the ratio of the numbers of items, the inflation factor of Jennison and Turnbull (2000, ch. 2.3):
    1.11 for five Pocock looks at one-sided 2.5 % and power 80 %, against 1.01 for O'Brien and Fleming's.
    """
    t = np.asarray(looks.fractions)
    bounds = norm.isf(looks.nominal_alphas) * np.sqrt(t)

    def missing(drift: float) -> float:
        return float(_crossing_chances(t, bounds - drift * t).sum()) - power

    alone = float(norm.isf(looks.alpha) + norm.ppf(power))
    return float(brentq(missing, 0.0, _FAR)) / alone


def p_over_looks(p_values: Sequence[float], looks: Looks) -> float:
    """One p-value for all looks so far, from the ordinary one-sided p-value of each; may enter Holm at any look.

    The chance that Wang-Tsiatis's boundary through the most extreme look is ever reached under H0 (a repeated p-value;
    Jennison and Turnbull 2000, ch. 9). As exact as the p-values are; for t tests the usual p-value scale (ch. 3.8).
    Raises ValueError when a p-value is NaN or outside [0, 1], or when there are more of them than planned looks.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not (1 <= p.size <= len(looks.fractions) and np.all((p >= 0) & (p <= 1))):
        raise ValueError("needs one p-value in [0, 1] for each of the first looks")
    t = np.asarray(looks.fractions)
    z = np.clip(norm.isf(p), -_FAR, _FAR)
    c = min(float((z * t[: p.size] ** (0.5 - looks.shape)).max()), _FAR)
    return min(1.0, float(_crossing_chances(t, c * t**looks.shape).sum()))


def _crossing_chances(t: Floats, bounds: Floats) -> Floats:
    """Chance that Brownian motion, seen at times `t`, is first above its bound at each of them. Shapes (K,), (K,)."""
    chances = np.empty(t.size)
    positions, mass = np.zeros(1), np.ones(1)
    for k, step in enumerate(np.sqrt(np.diff(t, prepend=0.0))):
        chances[k] = mass @ ndtr((positions - bounds[k]) / step)
        lowest = -_FAR * math.sqrt(t[k])
        half_width = (bounds[k] - lowest) / 2
        reached = lowest + half_width * (_NODES + 1)
        density = (
            np.exp(-(((reached[:, None] - positions) / step) ** 2) / 2)
            @ mass
            / (step * math.sqrt(2 * math.pi))
        )
        positions, mass = reached, density * _WEIGHTS * half_width
    return chances


def harm_boundaries(discordant: npt.ArrayLike, spendable: npt.ArrayLike) -> npt.NDArray[np.int_]:
    """Smallest number of lost items that shows harm at each look, exact on the discordant pairs seen so far.

    `discordant`: cumulative discordant pairs at looks 1..K, shape (K,) or (R, K). `spendable`: cumulative alpha, shape
    (K,) or (R, K). Returns the boundaries in their common shape; one above the number of pairs cannot be reached.

    Under H0 each discordant pair is lost with probability at most 1/2 whenever it appears, so the numbers of pairs are
    ancillary, and for every path of them the chance of ever reaching a boundary is at most the alpha spent (Lan and
    DeMets's spending with binomial increments; Jennison and Turnbull 2000, ch. 12).
    Raises ValueError when the pairs are negative or decrease.
    """
    pairs, budget = np.broadcast_arrays(
        np.asarray(discordant, dtype=np.int_), np.asarray(spendable, dtype=float)
    )
    steps = np.diff(np.atleast_2d(pairs), axis=1, prepend=0)
    if (steps < 0).any():
        raise ValueError("cumulative discordant pairs cannot be negative or decrease")
    rows = np.atleast_2d(budget)
    boundaries = np.empty(rows.shape, dtype=np.int_)
    going = np.zeros((len(rows), int(pairs.max(initial=0)) + 2))
    going[:, 0] = 1.0
    spent, lost = np.zeros(len(rows)), np.arange(going.shape[1])
    for k in range(rows.shape[1]):
        going = _after_fair_tosses(going, steps[:, k])
        tail = np.cumsum(going[:, ::-1], axis=1)[:, ::-1]
        boundaries[:, k] = np.argmax(tail <= (rows[:, k] - spent)[:, None], axis=1)
        spent = spent + np.take_along_axis(tail, boundaries[:, [k]], axis=1)[:, 0]
        going[lost >= boundaries[:, [k]]] = 0.0
    return boundaries.reshape(budget.shape)


def _after_fair_tosses(chances: Floats, tosses: npt.NDArray[np.int_]) -> Floats:
    """Distribution of lost items, shape (R, width), after `tosses` (shape (R,)) more fair coins in each row."""
    heads = binom.pmf(np.arange(tosses.max(initial=0) + 1), tosses[:, None], 0.5)
    after = np.zeros_like(chances)
    for k in range(heads.shape[1]):
        after[:, k:] += chances[:, : chances.shape[1] - k] * heads[:, [k]]
    return after


def harm_p(lost: Sequence[int], discordant: Sequence[int], looks: Looks) -> float:
    """Sequential one-sided p-value for harm after the looks so far; may be compared with alpha, or enter Holm, at any.

    `lost` and `discordant` are cumulative counts at the first looks of the design. The p-value is the smallest level at
    which, and above which, some look so far reached its boundary, on a grid of levels 5 % apart from 0.5 to 1e-6; it is
    1 where none did. P(p <= a) <= a for every a under H0, at whatever look one stops.
    """
    seen = len(discordant)
    if len(lost) != seen or not 1 <= seen <= len(looks.fractions):
        raise ValueError("needs the lost and discordant counts of the same, planned looks")
    shares = np.asarray(looks.shares_spent[:seen])
    boundaries = harm_boundaries(discordant, _LEVELS[:, None] * shares)
    reached = (np.asarray(lost) >= boundaries).any(axis=1)
    levels_reached = int(np.argmin(np.append(reached, False)))
    return float(_LEVELS[levels_reached - 1]) if levels_reached else 1.0


def chance_to_decide(
    *, lost: int, gained: int, n: int, n_max: int, margin: float, final_alpha: float
) -> float:
    """Predictive chance that the last look, at `n_max` items, is conclusive: Passed or Regressed, not Inconclusive.

    `final_alpha` is the nominal level of the last look. Averages over what `n` items leave open about the true rates
    (predictive power; Spiegelhalter, Freedman and Blackburn 1986, Controlled Clin. Trials 7:8-17): the final score
    statistic varies around the scaled-up one with standard deviation sqrt(items to come / items seen). Stopping when
    this is negligible costs no error: it can only turn answers into Inconclusive.
    """
    if not 1 <= n <= n_max:
        raise ValueError("needs 1 <= n <= n_max")
    scale = n_max / n
    scaled = {"lost": lost * scale, "gained": gained * scale, "n": float(n_max)}
    z = float(norm.isf(final_alpha))
    distances = (
        score_statistic(**scaled, difference=-margin) - z,
        -score_statistic(**scaled, difference=0.0) - z,
    )
    if n == n_max:
        return 1.0 if max(distances) > 0 else 0.0
    sd = math.sqrt(n_max / n - 1)
    return min(1.0, sum(float(norm.cdf(d / sd)) for d in distances))


def chance_to_decide_mean(
    values: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    limit: float,
    harm_from: float,
    share: float,
    final_alpha: float,
) -> float:
    """Predictive chance that the last look finds the mean wholly below `limit` or wholly above `harm_from`.

    `share`: of the planned documents, the part that is in `values` (shape (n,), units of the limits), in (0, 1]. The
    final statistic varies around the present one, scaled up, as in `chance_to_decide`; the spread counts as known.
    Errors as in `clustered_mean`, and ValueError on a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError("needs a share in (0, 1]")
    m = clustered_mean(values, clusters)
    if m.spread == 0:
        return 1.0 if m.mean < limit or m.mean > harm_from else 0.0
    documents = m.n_clusters / share
    z = float(student.ppf(1 - final_alpha, documents - 1))
    scale = math.sqrt(documents) / m.spread
    distances = ((limit - m.mean) * scale - z, (m.mean - harm_from) * scale - z)
    if share == 1:
        return 1.0 if max(distances) > 0 else 0.0
    sd = math.sqrt(1 / share - 1)
    return min(1.0, sum(float(norm.cdf(d / sd)) for d in distances))
