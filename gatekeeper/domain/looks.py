"""Looks within a probe: after which batches a run could have stopped, and how many of these looks there were.

A suite that may stop early measures its items in batches. Each look spends a part of the error rate, so that all of
them together keep to the policy's alpha; `gatekeeper.stats.sequential` has the designs. One look has it all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from gatekeeper.stats.sequential import Looks, wang_tsiatis


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The looks of one sample.

    `fractions`: the share of the planned items at every planned look, the last 1; `seen`: how many items had a value at
    each look so far; `planned`: items if nothing stops the run.
    """

    fractions: tuple[float, ...]
    seen: tuple[int, ...]
    planned: int

    @property
    def is_single(self) -> bool:
        """True where the sample is looked at once, at its end."""
        return len(self.fractions) == 1

    @property
    def is_over(self) -> bool:
        """True if the last look has been."""
        return len(self.seen) == len(self.fractions)

    @property
    def share_seen(self) -> float:
        """The share of the planned items that the last look saw."""
        return self.fractions[len(self.seen) - 1]

    def design(self, alpha: float, shape: float) -> Looks:
        """The Wang-Tsiatis design of these looks."""
        return wang_tsiatis(self.fractions, alpha=alpha, shape=shape)

    def alpha_now(self, alpha: float, shape: float) -> float:
        """The one-sided level at which an ordinary bound is to be read at the look that was last."""
        return alpha if self.is_single else self.design(alpha, shape).nominal_alphas[len(self.seen) - 1]


def schedule_of(
    planned: Iterable[int], measured: Iterable[int], *, batches_done: int | None, fewest: int
) -> Schedule:
    """The looks of a sample by the batch of each planned item and of each item that has a value.

    `batches_done`: None, or after how many batches the probe was ended on purpose. No look but the last comes before
    `fewest` items.
    """
    plan, values = sorted(planned), sorted(measured)
    ends = {batch: bisect_right(plan, batch) for batch in plan}
    looks = [batch for batch, end in ends.items() if end >= fewest or end == len(plan)]
    taken = [batch for batch in looks if batches_done is None or batch < batches_done]
    return Schedule(
        fractions=tuple(ends[batch] / len(plan) for batch in looks),
        seen=tuple(bisect_right(values, batch) for batch in taken),
        planned=len(plan),
    )
