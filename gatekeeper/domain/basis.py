"""On what terms a sample is estimated: the error rates, over all looks, and what speed needs besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.sample import MeanSample, PairSample


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """How to estimate: the one-sided `confidence` of every bound, and what the bounds of speed need besides.

    Where a sample has several looks, it is the confidence of all of them together.

    `speed_noise`: by metric, mode and group, the log ratio that each pair of launches of the same baseline showed; one
    launch of an arm whose noise is unknown has no bounds. `launches`: how many pairs of launches the suite allows.
    `hypotheses`: how many rules could prove harm, each in its modes and groups.
    """

    confidence: float
    speed_noise: Mapping[tuple[str, Mode, str], tuple[float, ...]] = field(default_factory=dict)
    launches: int = 1
    hypotheses: int = 1

    @property
    def alpha(self) -> float:
        """The one-sided error rate of every bound."""
        return 1 - self.confidence

    @property
    def proving_alpha(self) -> float:
        """A harm with a p-value no larger is upheld whatever the others come to: the first step of Holm's procedure."""
        return self.alpha / self.hypotheses


def confidence_now(sample: MeanSample | PairSample, basis: Basis, shape: float) -> float:
    """The nominal one-sided confidence at which bounds are read at the last look.

    Read so, the bounds of all looks hold together at the basis's confidence (Jennison and Turnbull 1984).
    """
    if sample.schedule.is_single:
        return basis.confidence
    return 1 - sample.schedule.alpha_now(basis.alpha, shape)


def confidence_at_last(sample: MeanSample | PairSample, basis: Basis, shape: float) -> float:
    """The same at the last of the planned looks, the one that more items would come after."""
    if sample.schedule.is_single:
        return basis.confidence
    return 1 - sample.schedule.design(basis.alpha, shape).nominal_alphas[-1]
