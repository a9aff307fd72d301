"""Before a run: can its suite decide the policy's rules at all?

A rule is decidable if a harmless change passes it, and harm as large as its margin is shown, in four runs of five. What
a run will vary by is not known before it; the noise floor of an earlier run of the same baseline is used where there is
one, and else the planning values below. docs/decision.md says where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, assert_never

from scipy.stats import norm, t

from gatekeeper.domain.base import Closed
from gatekeeper.domain.findings import FEWEST_TO_PASS
from gatekeeper.domain.free_decode import FreeDecodeProbe
from gatekeeper.domain.item_order import batch_ends
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.noise import floor_of, speed_noise
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import ALL, EACH, WORST, Rule, Severity
from gatekeeper.domain.probes import AccuracyProbe, FidelityProbe, RetrievalProbe
from gatekeeper.domain.scope import expected_modes, noise_bound, silent_beforehand
from gatekeeper.domain.sentence import amount, points
from gatekeeper.domain.speed_foresight import lacking_load, resolved
from gatekeeper.domain.token_foresight import lacking_context, scoring
from gatekeeper.domain.verdict import Noise
from gatekeeper.stats.power import items_to_detect, smallest_detectable_drop
from gatekeeper.stats.sequential import (
    DEFAULT_SHAPE,
    FEWEST_DOCUMENTS,
    SHAPE_FOR_MEANS,
    price_of_looks,
    wang_tsiatis,
)

POWER: Final = 0.8
FLIP_RATE: Final = 0.09
"""Share of accuracy items whose answer differs between the arms."""
BASELINE_ACCURACY: Final = 0.75
"""For margins that are a share of it."""
SCORE_SPREAD: Final = 0.05
"""Standard deviation of an item's change in the probability of the right choice."""
DOCUMENT_SPREAD: Final[Mapping[str, float]] = {"decode_nll": 0.03, "top1_agreement": 0.025}
"""Standard deviation of a document's mean, in the metric's unit."""
KL_SPREAD: Final = 0.5
"""Of a document's KL, as a share of the limit: KL varies with its size. Other token metrics are taken to do so too."""

Outlook = Literal["decidable", "undecidable", "unknown", "idle"]
ItemProbe: TypeAlias = AccuracyProbe | RetrievalProbe | FreeDecodeProbe


class Foresight(Closed):
    """What can be said of a rule before the run. `idle`: the rule does not apply to this change.

    `margin` and `detectable` are distances from an unchanged setup, in the metric's unit; logs of ratios for speed.
    """

    metric: str
    group: str
    severity: Severity
    outlook: Outlook
    margin: float | None = None
    detectable: float | None = None
    sentence: str


def foresee(plan: Plan, noise: Noise | None = None) -> tuple[Foresight, ...]:
    """One outlook per rule of the plan's policy, in order. `noise`: of an earlier run of the same baseline, if any."""
    return tuple(_of_rule(plan, rule, noise or Noise()) for rule in plan.policy.rules)


def _of_rule(plan: Plan, rule: Rule, noise: Noise) -> Foresight:
    if METRICS[rule.metric].is_over_contexts and not plan.suite.has_context_lengths:
        return _say(
            rule, "idle", "the suite scores after one length of context only, so the rule does not apply"
        )
    modes = expected_modes(rule, plan.modes, plan.suite)
    if not modes:
        state = f"{rule.mode} mode" if rule.mode else "state of the cache that the metric compares"
        return _say(rule, "idle", f"this change asks for no {state}, so the rule does not apply")
    silent = [silent_beforehand(plan, suite=METRICS[rule.metric].suite, mode=mode) for mode in modes]
    if silent[0] is not None and None not in silent:
        return _say(rule, "idle", silent[0])
    match METRICS[rule.metric].kind:
        case "token":
            return _of_tokens(plan, rule, noise)
        case "binary" | "score":
            return _of_items(plan, rule, noise)
        case "speed":
            return _of_speed(plan, rule, noise)
        case "capacity":
            return _of_capacity(plan, rule)
        case kind:
            assert_never(kind)


def _say(
    rule: Rule,
    outlook: Outlook,
    sentence: str,
    *,
    margin: float | None = None,
    detectable: float | None = None,
) -> Foresight:
    return Foresight(
        metric=rule.metric, group=rule.subset, severity=rule.severity, outlook=outlook,
        margin=margin, detectable=detectable, sentence=sentence,
    )  # fmt: skip


def _compared(rule: Rule, *, margin: float, detectable: float, shown: str, remedy: str) -> Foresight:
    """Decidable if what shows reliably is within the margin."""
    if detectable <= margin:
        return _say(rule, "decidable", shown, margin=margin, detectable=detectable)
    return _say(rule, "undecidable", f"{shown}; {remedy}", margin=margin, detectable=detectable)


# --- tokens ----------------------------------------------------------------------------------------------------------


def _of_tokens(plan: Plan, rule: Rule, noise: Noise) -> Foresight:
    metric = METRICS[rule.metric]
    expected = expected_modes(rule, plan.modes, plan.suite)
    modes = [mode for mode in expected if silent_beforehand(plan, suite=metric.suite, mode=mode) is None]
    probes = scoring(plan.suite, modes)
    if not probes:
        return _not_measured(rule, "fidelity")
    decoded, probe = min(probe.decode_tokens for probe in probes), min(probes, key=lambda p: p.documents)
    if rule.decode_position and rule.decode_position[1] > decoded:
        return _say(rule, "undecidable", f"the suite decodes {decoded} tokens only")
    lacking = lacking_context(probes, rule, modes)
    if lacking:
        return _say(rule, "undecidable", lacking)
    if probe.documents < FEWEST_TO_PASS:
        return _say(
            rule, "undecidable", f"{probe.documents} documents pass nothing, {FEWEST_TO_PASS} are needed"
        )
    floor = floor_of(noise, rule.metric, rule.subset)
    bound = rule.bound if rule.form != "at_most_noise_multiple" else noise_bound(rule, floor)
    if bound is None:
        return _say(
            rule, "unknown", "the limit depends on the noise floor, which no earlier run has measured"
        )
    still = 1.0 if metric.higher_is_better else 0.0
    margin, moved = abs(bound - still), abs((still if floor is None else floor) - still)
    spread = DOCUMENT_SPREAD.get(metric.name, KL_SPREAD * margin)
    batches = probe.batches if isinstance(probe, FidelityProbe) else 1
    price = _price_of_looks(plan, probe.documents, batches, FEWEST_DOCUMENTS, SHAPE_FOR_MEANS)
    reach = price * _reach(plan, probe.documents - 1) * spread / math.sqrt(probe.documents)
    harm = bound - reach if metric.higher_is_better else bound + reach
    shown = f"over {probe.documents} documents, harm shows reliably from {amount(metric, harm)}"
    if moved:
        shown += f"; two launches of the baseline differ by {amount(metric, moved)}"
    return _compared(
        rule, margin=margin, detectable=moved + reach, shown=shown,
        remedy=f"with the limit {amount(metric, bound)} an unchanged setup may not pass",
    )  # fmt: skip


# --- items -----------------------------------------------------------------------------------------------------------


def _of_items(plan: Plan, rule: Rule, noise: Noise) -> Foresight:
    probe = _asking(plan, METRICS[rule.metric].suite)
    if probe is None:
        return _not_measured(rule, METRICS[rule.metric].suite)
    task, count = _fewest(probe, rule)
    if task not in (ALL, *probe.items):
        return _say(rule, "undecidable", f"the suite has no task {task}; it has {', '.join(probe.items)}")
    if count == 0:
        return _say(rule, "undecidable", f"the suite has no item of {rule.subset} tokens")
    where = f" of {task}" if task != ALL else ""
    if count is None:
        return _say(rule, "unknown", f"how many items{where} there are is known only after the run")
    if METRICS[rule.metric].kind == "score":
        price = _price_of_looks(plan, count, probe.batches, FEWEST_DOCUMENTS, SHAPE_FOR_MEANS)
        return _of_scores(plan, rule, count, where, price)
    price = _price_of_looks(plan, count, probe.batches, 1, DEFAULT_SHAPE)
    return _of_answers(plan, rule, count, where, noise, price)


def _asking(plan: Plan, suite: str) -> ItemProbe | None:
    """The probe that asks the items of a suite."""
    for probe in plan.suite.probes:
        if isinstance(probe, AccuracyProbe | RetrievalProbe | FreeDecodeProbe) and probe.probe == suite:
            return probe
    return None


def _fewest(probe: ItemProbe, rule: Rule) -> tuple[str, int | None]:
    """The task that a rule is hardest to decide for, with its items; `all` items together have a sum."""
    items, group = probe.items, rule.group
    if rule.context and isinstance(probe, RetrievalProbe):
        return ALL, probe.items_between(*rule.context)
    if group not in (ALL, EACH, WORST):
        return group, items.get(group)
    known = {task: count for task, count in items.items() if count is not None}
    if len(known) < len(items):
        return ALL, None
    if group == ALL:
        return ALL, sum(known.values())
    task = min(known, key=lambda name: known[name])
    return task, known[task]


def _of_answers(plan: Plan, rule: Rule, count: int, where: str, noise: Noise, price: float) -> Foresight:
    if rule.at_least_of_baseline is not None:
        margin = (1 - rule.at_least_of_baseline) * (_baseline_accuracy(noise) or BASELINE_ACCURACY)
    else:
        margin = rule.max_drop or 0.0
    flips = max(noise.accuracy_flip_rate or 0.0, FLIP_RATE)
    planned = " (a planning value)" if flips == FLIP_RATE else ""
    drop = min(
        price * (smallest_detectable_drop(n=count, flip_rate=flips, alpha=plan.policy.alpha) or 1.0), 1.0
    )
    return _compared(
        rule, margin=margin, detectable=drop,
        shown=f"with {count} items{where} and {100 * flips:g}% flips{planned}, a drop of {100 * drop:.1f} points shows "
        "reliably",
        remedy=_remedy(margin, items_to_detect(drop=margin / price, flip_rate=flips, alpha=plan.policy.alpha)),
    )  # fmt: skip


def _remedy(margin: float, items: int | None) -> str:
    """How many items would decide a margin."""
    if items is None:
        return f"no number of items decides a margin of {points(margin)}"
    return f"the margin is {points(margin)}, for which about {items:,} items would do"


def _baseline_accuracy(noise: Noise) -> float | None:
    found = [delta.baseline for delta in noise.deltas if (delta.metric, delta.group) == ("accuracy", ALL)]
    return found[0] if found else None


def _of_scores(plan: Plan, rule: Rule, count: int, where: str, price: float) -> Foresight:
    if count < FEWEST_TO_PASS:
        return _say(rule, "undecidable", f"{count} items{where} pass nothing, {FEWEST_TO_PASS} are needed")
    margin = rule.max_drop or 0.0
    reach = price * _reach(plan, count - 1) * SCORE_SPREAD / math.sqrt(count)
    return _compared(
        rule, margin=margin, detectable=reach,
        shown=f"with {count} items{where}, a mean drop of {100 * reach:.1f} points shows reliably",
        remedy=_remedy(margin, _scores_needed(plan, margin, price * SCORE_SPREAD)),
    )  # fmt: skip


def _scores_needed(plan: Plan, margin: float, spread: float) -> int | None:
    """`spread`: standard deviation of an item's change."""
    return None if margin == 0 else math.ceil((spread * _reach(plan, None) / margin) ** 2)


# --- speed and capacity ----------------------------------------------------------------------------------------------


def _of_speed(plan: Plan, rule: Rule, noise: Noise) -> Foresight:
    """Whether an unchanged engine can pass. A demanded gain is measured from what the rule demands instead."""
    probe, bound = plan.suite.speed, rule.bound
    if probe is None or bound is None:
        return _not_measured(rule, "performance")
    lacking = lacking_load(plan, rule, probe)
    if lacking:
        return _say(rule, "undecidable", lacking)
    known = speed_noise(noise).get((rule.metric, rule.mode or "cold", rule.subset), ())
    shown, reach = resolved(plan, probe, known, power=POWER)
    margin = abs(math.log(bound))
    if rule.demands_gain:
        gain = math.exp(margin + reach)
        told = gain if METRICS[rule.metric].higher_is_better else 1 / gain
        sentence = f"{shown}: a true {told:.2f}x would show the demanded {bound:g}x reliably"
        return _say(rule, "decidable", sentence, margin=margin, detectable=margin + reach)
    return _compared(
        rule, margin=margin, detectable=reach, shown=shown,
        remedy=f"an unchanged engine may not pass a limit {100 * abs(bound - 1):.0f}% away",
    )  # fmt: skip


def _of_capacity(plan: Plan, rule: Rule) -> Foresight:
    before, after = plan.baseline.predicted_kv_bytes_per_token, plan.candidate.predicted_kv_bytes_per_token
    if not before or not after:
        return _say(rule, "decidable", "the engine reports it exactly")
    bound, ratio = rule.bound or 0.0, before / after
    verdict = "" if ratio >= bound else f", so it cannot reach {bound:g}x"
    sentence = f"the engine reports it exactly; by formula it comes to {ratio:.2f}x{verdict}"
    return _say(rule, "decidable", sentence)


def _not_measured(rule: Rule, probe: str) -> Foresight:
    return _say(rule, "undecidable", f"the suite has no {probe} probe")


def _price_of_looks(plan: Plan, items: int, batches: int, fewest: int, shape: float) -> float:
    """How many times as large harm must be because a run may stop after each batch."""
    ends = [end for end in batch_ends(items, batches) if end >= fewest or end == items]
    if len(ends) == 1:
        return 1.0
    design = wang_tsiatis(tuple(end / items for end in ends), alpha=plan.policy.alpha, shape=shape)
    return price_of_looks(design, power=POWER)


def _reach(plan: Plan, df: int | None) -> float:
    """Standard errors between a value that is just shown and one that is shown in four runs of five."""
    levels = (1 - plan.policy.alpha, POWER)
    return float(norm.ppf(levels).sum() if df is None else t.ppf(levels, df).sum())
