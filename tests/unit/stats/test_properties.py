"""What must hold for any data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.stats.anytime import mean_confidence_sequence
from gatekeeper.stats.binary import mcnemar_exact, paired_difference_interval
from gatekeeper.stats.continuous import mean_greater_p, mean_interval, mean_less_p
from gatekeeper.stats.interval import Interval
from gatekeeper.stats.multiple import holm
from gatekeeper.stats.ratio import log_ratio_interval
from gatekeeper.stats.sequential import harm_p, wang_tsiatis

counts = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 200))
confidences = st.sampled_from([0.5, 0.8, 0.95, 0.975, 0.999])
values = st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 6)), min_size=2, max_size=40)
figures = st.lists(st.floats(0.1, 1e4), min_size=2, max_size=12)


def near(interval: Interval) -> tuple[object, object, object]:
    return tuple(
        pytest.approx(x, rel=1e-6, abs=1e-6) for x in (interval.estimate, interval.lower, interval.upper)
    )  # type: ignore[return-value]


def parts(interval: Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.lower, interval.upper


@given(counts, confidences)
def test_swapping_the_arms_mirrors_the_paired_difference(
    sample: tuple[int, int, int], confidence: float
) -> None:
    lost, gained, concordant = sample
    n = lost + gained + concordant
    there = paired_difference_interval(lost=lost, gained=gained, n=n, confidence=confidence)
    back = paired_difference_interval(lost=gained, gained=lost, n=n, confidence=confidence)
    assert parts(back.mirrored) == parts(there)
    assert -1 <= there.lower <= there.estimate <= there.upper <= 1


@given(counts, st.integers(2, 5))
def test_more_items_at_the_same_rates_never_widen_the_paired_difference(
    sample: tuple[int, int, int], factor: int
) -> None:
    lost, gained, concordant = sample
    few = paired_difference_interval(lost=lost, gained=gained, n=lost + gained + concordant, confidence=0.95)
    many = paired_difference_interval(
        lost=lost * factor, gained=gained * factor, n=(lost + gained + concordant) * factor, confidence=0.95
    )
    assert many.upper - many.lower <= few.upper - few.lower + 1e-9


@given(st.integers(0, 200), st.integers(0, 200))
def test_an_extra_lost_item_never_looks_less_harmful(lost: int, gained: int) -> None:
    assert mcnemar_exact(lost=lost + 1, gained=gained) <= mcnemar_exact(lost=lost, gained=gained) + 1e-12


@given(values, confidences, st.data())
def test_swapping_the_arms_mirrors_a_mean(x: list[float], confidence: float, data: st.DataObject) -> None:
    clusters = data.draw(
        st.lists(st.integers(0, 5), min_size=len(x), max_size=len(x)).filter(lambda c: len(set(c)) > 1)
    )
    there = mean_interval(x, clusters, confidence=confidence)
    back = mean_interval(np.negative(x), clusters, confidence=confidence)
    assert parts(back.mirrored) == near(there)
    assert there.lower <= there.upper
    assert mean_greater_p(x, clusters, threshold=1.0) == pytest.approx(
        mean_less_p(np.negative(x), clusters, threshold=-1.0)
    )


@given(values, st.randoms(use_true_random=False))
def test_the_order_of_items_does_not_matter_to_a_mean(x: list[float], random: object) -> None:
    clusters = [i % max(2, len(x) // 3) for i in range(len(x))]
    order = np.random.default_rng(getattr(random, "randint")(0, 2**31)).permutation(len(x))  # noqa: B009
    there = mean_interval(x, clusters, confidence=0.95)
    back = mean_interval(np.asarray(x)[order], np.asarray(clusters)[order], confidence=0.95)
    assert parts(back) == near(there)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_order_of_items_does_not_matter_to_a_confidence_sequence(x: list[float]) -> None:
    there = mean_confidence_sequence(x, lowest=0.0, highest=1.0, confidence=0.95)
    back = mean_confidence_sequence(x[::-1], lowest=0.0, highest=1.0, confidence=0.95)
    assert parts(back) == near(there)
    assert 0 <= there.lower <= there.upper <= 1


@given(figures, figures)
def test_swapping_the_arms_inverts_a_speed_ratio(baseline: list[float], candidate: list[float]) -> None:
    there = log_ratio_interval(baseline, candidate, confidence=0.95)
    back = log_ratio_interval(candidate, baseline, confidence=0.95)
    assert np.log([1 / back.estimate]) == pytest.approx(np.log([there.estimate]), abs=1e-9)
    assert there.lower <= there.estimate <= there.upper


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.001, 0.2))
def test_holm_rejects_everything_bonferroni_does_and_nothing_above_alpha(
    p: list[float], alpha: float
) -> None:
    rejected = holm(p, alpha=alpha)
    assert all(reject for value, reject in zip(p, rejected, strict=True) if value < alpha / len(p))
    assert not any(reject for value, reject in zip(p, rejected, strict=True) if value > alpha)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=3, max_size=3))
def test_no_sequence_of_looks_beats_the_unadjusted_test(batches: list[tuple[int, int]]) -> None:
    lost, gained = np.cumsum(batches, axis=0).T.tolist()
    p = harm_p(
        lost, [b + c for b, c in zip(lost, gained, strict=True)], wang_tsiatis((0.3, 0.6, 1.0), alpha=0.05)
    )
    best = min(mcnemar_exact(lost=b, gained=c) for b, c in zip(lost, gained, strict=True))
    assert p >= min(best, 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_more_documents_narrow_a_mean_on_average(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = []
    for n in (8, 16, 32, 64):
        intervals = [mean_interval(rng.gamma(2.0, 0.5, n), np.arange(n), confidence=0.95) for _ in range(200)]
        widths.append(float(np.mean([i.upper - i.lower for i in intervals])))
    assert widths == sorted(widths, reverse=True)
