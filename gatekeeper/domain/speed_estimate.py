"""The ratio of two arms' speed with what its bounds owe to the noise between launches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gatekeeper.stats.interval import Interval
from gatekeeper.stats.ratio import (
    TurnsEstimate,
    launch_noise_factor,
    launch_noise_p,
    log_ratio_greater_p,
    log_ratio_interval,
    log_ratio_less_p,
    turns_estimate,
)
from gatekeeper.stats.sequential import p_over_looks, wang_tsiatis

ALONE: Final = "Welch t on log rounds of one launch per arm, widened by the noise between two launches"
IN_TURNS: Final = "t on log ratios of pairs of launches that took turns, pooled with pairs of equal launches"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """How to estimate and what to test: one-sided `confidence`, and the ratio at which a rule is just broken, if any.

    `noise`: the log ratio of each pair of launches of the baseline; empty: unknown.
    """

    confidence: float
    noise: Sequence[float]
    bound: float | None
    higher_is_better: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedEstimate:
    """Candidate / baseline, the bounds at the level of the last look. `launches`: the log ratio of each pair."""

    interval: Interval
    harm_p: float | None
    launches: tuple[float, ...]


def alone(before: Sequence[float], after: Sequence[float], question: Question) -> SpeedEstimate:
    """From rounds of one launch per arm, not paired.

    Rounds within one launch do not see what differs between launches (memory placement, page cache, clock), so their
    interval alone is too narrow. The control launch shows that effect once: `launch_noise_factor`.
    """
    interval = log_ratio_interval(before, after, confidence=question.confidence)
    launches = (math.log(interval.estimate),)
    if not question.noise:
        unbounded = replace(interval, lower=-math.inf, upper=math.inf)
        return SpeedEstimate(interval=unbounded, harm_p=None, launches=launches)
    factor = launch_noise_factor(question.noise, confidence=question.confidence)
    harm_p = None
    if question.bound is not None:
        test, sign = (log_ratio_less_p, 1) if question.higher_is_better else (log_ratio_greater_p, -1)
        harm = sign * math.log(question.bound / interval.estimate)
        rounds_p = test(before, after, threshold=question.bound)
        harm_p = max(rounds_p, launch_noise_p(harm, noise=question.noise))
    wide = replace(interval, lower=interval.lower / factor, upper=interval.upper * factor)
    return SpeedEstimate(interval=wide, harm_p=harm_p, launches=launches)


def in_turns(
    pairs: Mapping[int, Sequence[tuple[float, float]]], question: Question, *, planned: int
) -> SpeedEstimate:
    """From pairs of launches that took turns, as (baseline's, candidate's) figure by round and pair, counted from 1.

    Every pair but the last of the `planned` ones may have ended the measuring, so the bounds are read at the level of
    the last pair's look, and the p-value is that of all looks so far.
    """
    logs = {launch: [math.log(after / before) for before, after in pairs[launch]] for launch in sorted(pairs)}
    design = wang_tsiatis(tuple(k / planned for k in range(1, planned + 1)), alpha=1 - question.confidence)
    look = min(max(logs), planned)
    estimate = turns_estimate(list(logs.values()), unchanged=question.noise)
    interval = estimate.interval(confidence=1 - design.nominal_alphas[look - 1])
    harm_p = None
    if question.bound is not None:
        seen = [[logs[launch] for launch in logs if launch <= k] for k in range(1, look)]
        earlier = [turns_estimate(some, unchanged=question.noise) if some else None for some in seen]
        harm_p = p_over_looks([_harm(one, question) for one in (*earlier, estimate)], design)
    return SpeedEstimate(
        interval=interval,
        harm_p=harm_p,
        launches=tuple(float(np.mean(rounds)) for rounds in logs.values()),
    )


def _harm(estimate: TurnsEstimate | None, question: Question) -> float:
    """One-sided p of "no worse than the bound"; 1 while there is no pair."""
    assert question.bound is not None  # the caller looked
    if estimate is None:
        return 1.0
    test = estimate.less_p if question.higher_is_better else estimate.greater_p
    return test(threshold=question.bound)
