"""From a sample to a delta: the estimate with its bounds, the test against a rule's limit, and what more would show."""

from __future__ import annotations

import math
from typing import assert_never

import numpy as np

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.basis import Basis, confidence_at_last, confidence_now
from gatekeeper.domain.metric import Metric
from gatekeeper.domain.sample import (
    WHOLE,
    ExactSample,
    MeanSample,
    PairSample,
    Parts,
    Place,
    RoundSample,
    Sample,
    TurnsSample,
)
from gatekeeper.domain.sampling import samples_between
from gatekeeper.domain.speed_estimate import ALONE, IN_TURNS, Question, alone, in_turns
from gatekeeper.domain.verdict import ContextPoint, CurvePoint, Delta
from gatekeeper.stats.binary import mcnemar_exact, paired_difference_interval
from gatekeeper.stats.continuous import mean_greater_p, mean_interval, mean_less_p
from gatekeeper.stats.interval import Interval
from gatekeeper.stats.power import (
    items_to_decide,
    items_to_decide_mean,
    items_to_detect,
    smallest_detectable_drop,
    smallest_detectable_mean,
)
from gatekeeper.stats.relative import ratio_lower_bound
from gatekeeper.stats.sequential import (
    DEFAULT_SHAPE,
    SHAPE_FOR_MEANS,
    chance_to_decide,
    chance_to_decide_mean,
    harm_p,
    p_over_looks,
)


def deltas_between(
    baseline: ArmRecord, candidate: ArmRecord, basis: Basis, *, parts: Parts = WHOLE
) -> tuple[Delta, ...]:
    """Every delta that the two arms support, held against no rule."""
    samples = samples_between(baseline, candidate, parts=parts)
    return tuple(delta_of(sample, basis) for sample in samples)


def delta_of(sample: Sample, basis: Basis, *, bound: float | None = None) -> Delta:
    """Estimate a sample. `bound`: the metric's value at which a rule is just broken, for the figures that need one."""
    match sample:
        case MeanSample():
            return _mean_delta(sample, basis, bound)
        case PairSample():
            return _pair_delta(sample, basis, bound)
        case RoundSample() | TurnsSample():
            return _speed_delta(sample, basis, bound)
        case ExactSample():
            return _exact_delta(sample, basis)
        case _:
            assert_never(sample)


def _mean_delta(sample: MeanSample, basis: Basis, bound: float | None) -> Delta:
    metric, n, clusters = sample.place.metric, sample.values.size, len(set(sample.clusters))
    interval = mean_interval(
        sample.values, sample.clusters, confidence=confidence_now(sample, basis, SHAPE_FOR_MEANS)
    )
    over = "items" if metric.kind == "score" else "documents"
    delta = _delta(
        sample.place, interval, n=n, clusters=clusters, missing=sample.missing, planned=sample.schedule.planned,
        baseline=sample.baseline, candidate=sample.candidate, curve=_curve(sample, basis),
        context_curve=_context_curve(sample, basis), confidence=basis.confidence,
        method=f"mean over {over}, skewness-corrected t{_looked(sample)}",
    )  # fmt: skip
    return delta if bound is None else delta.model_copy(update=_against_bound(sample, interval, bound, basis))


def _curve(sample: MeanSample, basis: Basis) -> tuple[CurvePoint, ...]:
    """The course of the mean along the decode. Every stretch has its own interval; looks play no part in them."""
    points = []
    for part in sample.curve:
        interval = mean_interval(part.values, sample.clusters, confidence=basis.confidence)
        points.append(
            CurvePoint(
                start=part.start,
                end=part.end,
                estimate=part.estimate,
                lower=_bounded(sample.place.metric, interval.lower),
                upper=_bounded(sample.place.metric, interval.upper),
            )
        )
    return tuple(points)


def _context_curve(sample: MeanSample, basis: Basis) -> tuple[ContextPoint, ...]:
    """The mean after each length of context, with an interval of its own as above."""
    points = []
    for part in sample.by_context:
        interval = mean_interval(part.values, part.clusters, confidence=basis.confidence)
        points.append(
            ContextPoint(
                context_tokens=part.context_tokens,
                documents=len(part.clusters),
                estimate=interval.estimate,
                lower=_bounded(sample.place.metric, interval.lower),
                upper=_bounded(sample.place.metric, interval.upper),
            )
        )
    return tuple(points)


def _looked(sample: MeanSample | PairSample) -> str:
    schedule = sample.schedule
    return "" if schedule.is_single else f"; look {len(schedule.seen)} of {len(schedule.fractions)}"


def _against_bound(
    sample: MeanSample, interval: Interval, bound: float, basis: Basis
) -> dict[str, float | int | None]:
    """What a rule's bound adds to a mean: the test for harm, and the planning figures.

    Harm lies beyond the bound itself; a margin for a change instead has it beyond no change at all, see `findings`.
    """
    metric, values, clusters = sample.place.metric, sample.values, sample.clusters
    harm_from = 0.0 if metric.form == "max_drop" else bound
    sign = -1.0 if metric.higher_is_better else 1.0
    harm_p = _mean_harm_p(sample, harm_from, basis)
    more = items_to_decide_mean(
        sign * values, clusters, limit=sign * bound, harm_from=sign * harm_from,
        confidence=confidence_at_last(sample, basis, SHAPE_FOR_MEANS),
    )  # fmt: skip
    shows_harm = interval.upper < harm_from if metric.higher_is_better else interval.lower > harm_from
    shows_none = interval.lower > bound if metric.higher_is_better else interval.upper < bound
    if shows_harm and not shows_none and harm_p > basis.proving_alpha:
        more = items_to_decide_mean(
            sign * values, clusters, limit=-math.inf, harm_from=sign * harm_from,
            confidence=1 - basis.proving_alpha,
        )  # fmt: skip
    detectable = smallest_detectable_mean(
        sign * values, clusters, limit=sign * harm_from, confidence=basis.confidence
    )
    return {
        "harm_p": harm_p,
        "more_items": more,
        "detectable": sign * detectable,
        "chance_to_decide": _mean_chance(sample, sign, bound, harm_from, basis),
    }


def _mean_harm_p(sample: MeanSample, threshold: float, basis: Basis) -> float:
    """One p-value for all looks so far."""
    test = mean_less_p if sample.place.metric.higher_is_better else mean_greater_p
    schedule = sample.schedule
    if schedule.is_single:
        return test(sample.values, sample.clusters, threshold=threshold)
    looks = [
        test(sample.values[:seen], sample.clusters[:seen], threshold=threshold)
        if len(set(sample.clusters[:seen])) > 1
        else 1.0  # what came to nothing, or to one document, shows no harm at that look
        for seen in schedule.seen
    ]
    return p_over_looks(looks, schedule.design(basis.alpha, SHAPE_FOR_MEANS))


def _mean_chance(
    sample: MeanSample, sign: float, bound: float, harm_from: float, basis: Basis
) -> float | None:
    """The chance that the last look, yet to come, decides."""
    if sample.schedule.is_over:
        return None
    design = sample.schedule.design(basis.alpha, SHAPE_FOR_MEANS)
    return chance_to_decide_mean(
        sign * sample.values, sample.clusters, limit=sign * bound, harm_from=sign * harm_from,
        share=sample.schedule.share_seen, final_alpha=design.nominal_alphas[-1],
    )  # fmt: skip


def _pair_delta(sample: PairSample, basis: Basis, bound: float | None) -> Delta:
    counts = {"lost": sample.lost(), "gained": sample.gained(), "n": sample.n}
    confidence = confidence_now(sample, basis, DEFAULT_SHAPE)
    interval = paired_difference_interval(**counts, confidence=confidence)
    drop = smallest_detectable_drop(
        n=sample.n, flip_rate=(counts["lost"] + counts["gained"]) / sample.n, alpha=basis.alpha
    )
    delta = _delta(
        sample.place, interval, n=sample.n, clusters=sample.n, missing=sample.missing,
        planned=sample.schedule.planned, lost=counts["lost"], gained=counts["gained"],
        harm_p=_pair_harm_p(sample, basis), baseline=sample.baseline, candidate=sample.candidate,
        confidence=basis.confidence,
        detectable=None if drop is None else -drop, method=f"Tango score interval; exact McNemar{_looked(sample)}",
    )  # fmt: skip
    planning = {} if bound is None else _pair_planning(sample, delta, bound, basis)
    return delta.model_copy(update={**_kept(sample, confidence), **planning})


def _pair_harm_p(sample: PairSample, basis: Basis) -> float:
    """One p-value for all looks so far; it spends the basis's alpha, whatever level it is compared with."""
    schedule = sample.schedule
    if schedule.is_single:
        return mcnemar_exact(lost=sample.lost(), gained=sample.gained())
    lost = [sample.lost(seen) for seen in schedule.seen]
    discordant = [sample.lost(seen) + sample.gained(seen) for seen in schedule.seen]
    return harm_p(lost, discordant, schedule.design(basis.alpha, DEFAULT_SHAPE))


def _pair_planning(
    sample: PairSample, delta: Delta, bound: float, basis: Basis
) -> dict[str, float | int | None]:
    """How many items more would decide a rule, and the chance that those planned do."""
    counts = {"lost": sample.lost(), "gained": sample.gained(), "n": sample.n}
    more = items_to_decide(
        **counts, margin=-bound, confidence=confidence_at_last(sample, basis, DEFAULT_SHAPE)
    )
    assert delta.lower is not None  # score bounds are finite
    assert delta.upper is not None
    assert delta.harm_p is not None
    if delta.upper < 0 and delta.lower <= bound and delta.harm_p > basis.proving_alpha:
        more = _more_to_prove(**counts, alpha=basis.proving_alpha)
    if sample.schedule.is_over:
        return {"more_items": more}
    design = sample.schedule.design(basis.alpha, DEFAULT_SHAPE)
    chance = chance_to_decide(
        **counts, n_max=max(sample.schedule.planned, sample.n), margin=-bound, final_alpha=design.nominal_alphas[-1]
    )  # fmt: skip
    return {"more_items": more, "chance_to_decide": chance}


def _more_to_prove(*, lost: int, gained: int, n: int, alpha: float) -> int | None:
    """How many items more would prove the present loss by the exact test; at least 1, for these have not."""
    needed = items_to_detect(drop=(lost - gained) / n, flip_rate=(lost + gained) / n, alpha=alpha)
    return None if needed is None else max(needed - n, 1)


def _kept(sample: PairSample, confidence: float) -> dict[str, float]:
    """The share of the baseline's accuracy that the candidate keeps; nothing where the baseline has none."""
    if sample.baseline == 0:
        return {}
    table = {"both": sample.both, "lost": sample.lost(), "gained": sample.gained(), "n": sample.n}
    lower = ratio_lower_bound(**table, confidence=confidence)
    return {"kept": sample.candidate / sample.baseline, "kept_lower": lower}


def _speed_delta(sample: RoundSample | TurnsSample, basis: Basis, bound: float | None) -> Delta:
    """The ratio of two arms' rounds: of one launch each, or of pairs of launches that took turns."""
    question = Question(
        confidence=basis.confidence, noise=basis.speed_noise.get(sample.place.key, ()), bound=bound,
        higher_is_better=sample.place.metric.higher_is_better,
    )  # fmt: skip
    if isinstance(sample, TurnsSample):
        rounds = [pair for pairs in sample.pairs.values() for pair in pairs]
        estimate, method = in_turns(sample.pairs, question, planned=basis.launches), IN_TURNS
        before, after = zip(*rounds, strict=True)
    else:
        before, after = sample.before, sample.after
        estimate, method = alone(before, after, question), ALONE
    delta = _delta(
        sample.place, estimate.interval, n=len(after), clusters=len(estimate.launches), harm_p=estimate.harm_p,
        baseline=float(np.mean(before)), candidate=float(np.mean(after)), method=method,
        confidence=basis.confidence,
    )  # fmt: skip
    return delta.model_copy(update={"launches": estimate.launches})


def _exact_delta(sample: ExactSample, basis: Basis) -> Delta:
    ratio = sample.after / sample.before
    interval = Interval(estimate=ratio, lower=ratio, upper=ratio, confidence=basis.confidence)
    return _delta(
        sample.place, interval, n=1, clusters=1, baseline=sample.before, candidate=sample.after,
        confidence=basis.confidence,
        method="exact: pool tokens that the engines report",
    )  # fmt: skip


def _delta(
    place: Place,
    interval: Interval,
    *,
    n: int,
    clusters: int,
    confidence: float,
    method: str,
    missing: int = 0,
    planned: int | None = None,
    baseline: float | None = None,
    candidate: float | None = None,
    lost: int | None = None,
    gained: int | None = None,
    harm_p: float | None = None,
    detectable: float | None = None,
    curve: tuple[CurvePoint, ...] = (),
    context_curve: tuple[ContextPoint, ...] = (),
) -> Delta:
    metric: Metric = place.metric
    return Delta(
        metric=metric.name, unit=metric.unit, suite=place.suite, mode=place.mode, group=place.group, n=n,
        clusters=clusters, baseline=baseline, candidate=candidate, estimate=interval.estimate,
        lower=_bounded(metric, interval.lower), upper=_bounded(metric, interval.upper), confidence=confidence,
        harm_p=harm_p, lost=lost, gained=gained, missing=missing, planned=planned, detectable=detectable,
        method=method, curve=curve, context_curve=context_curve,
    )  # fmt: skip


def _bounded(metric: Metric, value: float) -> float | None:
    """Within what is possible: intervals that use the normal or the t distribution reach beyond it in small samples."""
    least, largest = metric.possible
    return min(max(value, least), largest) if math.isfinite(value) else None
