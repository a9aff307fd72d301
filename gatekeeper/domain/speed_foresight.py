"""Before a run: what its rounds will resolve of speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from scipy.stats import t

from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.speed_probe import PerformanceProbe
from gatekeeper.stats.ratio import launch_noise_factor, root_mean_square
from gatekeeper.stats.sequential import wang_tsiatis

LAUNCH_NOISE: Final = math.log(1.12)
"""Absolute log ratio of the same figure of two launches that run one after the other."""
ROUND_SPREAD: Final = 0.06
"""Standard deviation of the log of a figure between rounds of one launch."""
PAIR_SPREAD: Final = 0.02
ROUND_IN_TURNS: Final = 0.06
"""Standard deviations of the log ratio of two equal engines that take turns: between pairs of launches, and between
rounds of a pair."""


def lacking_load(plan: Plan, rule: Rule, probe: PerformanceProbe) -> str:
    """What the rule speaks of and no round has; empty where all is there."""
    lengths = probe.input_lengths
    if rule.metric == "goodput_ratio" and plan.change.deployment.slo is None:
        return "the deployment states no slo, so no request counts as good"
    if rule.mode == "warm" and not probe.shared_prefix_tokens:
        return "the suite sends no prompts that share a prefix"
    if rule.input_tokens and len(lengths) == 1:
        return f"the suite sends prompts of {lengths[0]} tokens only, which a rule without input_tokens speaks of"
    if rule.input_tokens and rule.input_tokens not in lengths:
        return f"the suite sends prompts of {' and '.join(map(str, lengths))} tokens"
    return ""


def resolved(
    plan: Plan, probe: PerformanceProbe, known: Sequence[float], *, power: float
) -> tuple[str, float]:
    """In words, and as a log ratio: what the rounds show of a change with that power.

    `known`: the log ratios that pairs of launches of the same baseline showed in an earlier run.
    """
    return (_in_turns if probe.turns else _alone)(probe, known, alpha=plan.policy.alpha, power=power)


def _alone(
    probe: PerformanceProbe, known: Sequence[float], *, alpha: float, power: float
) -> tuple[str, float]:
    """One launch per arm."""
    between = known or (LAUNCH_NOISE,)
    factor = launch_noise_factor(between, confidence=1 - alpha)
    df = 2 * (probe.rounds - 1)
    reach = float(t.isf(alpha, df) + t.ppf(power, df)) * ROUND_SPREAD * math.sqrt(2 / probe.rounds)
    shown = (
        f"two launches of the baseline differ by {percent(root_mean_square(between))} ({_source(known)}), which leaves "
        f"a ratio uncertain by a factor of {factor:.2f}, and {probe.rounds} rounds resolve {percent(reach)}"
    )
    return shown, math.log(factor) + reach


def _in_turns(
    probe: PerformanceProbe, known: Sequence[float], *, alpha: float, power: float
) -> tuple[str, float]:
    """Pairs of launches in turns, when all of them are used."""
    assert probe.turns is not None  # the caller looked
    pairs = probe.turns.launches
    planned = math.hypot(PAIR_SPREAD, ROUND_IN_TURNS / math.sqrt(probe.rounds))
    spread, df = root_mean_square(known or (planned,)), pairs - 1 + (len(known) or pairs)
    design = wang_tsiatis(tuple(k / pairs for k in range(1, pairs + 1)), alpha=alpha)
    reach = float(t.isf(design.nominal_alphas[-1], df) + t.ppf(power, df)) * spread / math.sqrt(pairs)
    shown = (
        f"pairs of launches of the baseline that take turns differ by {percent(spread)} ({_source(known)}), and "
        f"{pairs} pairs of {probe.rounds} rounds resolve {percent(reach)}"
    )
    return shown, reach


def percent(log_ratio: float) -> str:
    """A log ratio as a change in percent."""
    return f"{100 * math.expm1(log_ratio):.0f}%"


def _source(known: Sequence[float]) -> str:
    return "measured" if known else "a planning value"
