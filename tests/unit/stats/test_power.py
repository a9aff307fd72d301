"""Planning figures, checked by simulating what they promise."""

import numpy as np
import pytest

from gatekeeper.stats.binary import mcnemar_exact, paired_difference_interval
from gatekeeper.stats.continuous import mean_interval
from gatekeeper.stats.power import (
    items_to_decide,
    items_to_decide_mean,
    items_to_detect,
    mcnemar_power,
    smallest_detectable_drop,
    smallest_detectable_mean,
)


def test_the_smallest_detectable_drop_is_detected_four_times_in_five() -> None:
    drop = smallest_detectable_drop(n=500, flip_rate=0.1, alpha=0.05)
    assert drop is not None
    rng = np.random.default_rng(5)
    draws = rng.multinomial(500, [(0.1 + drop) / 2, (0.1 - drop) / 2, 0.9], size=4000)
    samples, repeats = np.unique(draws[:, :2], axis=0, return_counts=True)
    detected = [mcnemar_exact(lost=int(lost), gained=int(gained)) <= 0.05 for lost, gained in samples]
    assert np.average(detected, weights=repeats) == pytest.approx(0.8, abs=0.025)


def test_power_without_a_drop_stays_below_alpha() -> None:
    assert 0 < mcnemar_power(n=400, drop=0.0, flip_rate=0.1, alpha=0.05) < 0.05


def test_a_sample_too_small_for_any_verdict_has_no_detectable_drop() -> None:
    assert smallest_detectable_drop(n=3, flip_rate=0.1, alpha=0.05) is None


def test_more_items_detect_smaller_drops() -> None:
    drops = [smallest_detectable_drop(n=n, flip_rate=0.09, alpha=0.05) for n in (100, 400, 1600)]
    assert drops[0] is not None
    assert drops[1] is not None
    assert drops[2] is not None
    assert drops[0] > drops[1] > drops[2]


@pytest.mark.parametrize(("lost", "gained", "n"), [(10, 8, 200), (14, 7, 200), (40, 30, 1000)])
def test_the_items_asked_for_decide_four_times_in_five(lost: int, gained: int, n: int) -> None:
    more = items_to_decide(lost=lost, gained=gained, n=n, margin=0.02, confidence=0.95)
    assert more is not None
    rng = np.random.default_rng(6)
    draws = rng.multinomial(more, [lost / n, gained / n, 1 - (lost + gained) / n], size=1500)
    decided = []
    for new_lost, new_gained, _ in draws:
        interval = paired_difference_interval(
            lost=lost + int(new_lost), gained=gained + int(new_gained), n=n + more, confidence=0.95
        )
        decided.append(interval.lower > -0.02 or interval.upper < 0)
    assert np.mean(decided) == pytest.approx(0.8, abs=0.05)


def test_a_conclusive_sample_needs_no_more_items() -> None:
    assert items_to_decide(lost=60, gained=10, n=1000, margin=0.02, confidence=0.95) == 0


def test_a_tie_on_a_zero_margin_is_never_decided() -> None:
    assert items_to_decide(lost=10, gained=10, n=500, margin=0.0, confidence=0.95) is None


def test_the_documents_asked_for_decide_the_mean_four_times_in_five() -> None:
    rng = np.random.default_rng(8)
    seen = rng.gamma(16.0, 1 / 16, 16)
    seen = (seen - seen.mean()) / seen.std(ddof=1) * 0.25 + 1.0
    more = items_to_decide_mean(
        np.repeat(seen, 10), np.repeat(np.arange(16), 10), limit=1.08, confidence=0.95
    )
    assert more is not None
    assert more % 10 == 0
    total = 16 + more // 10
    decided = []
    for _ in range(600):
        values = np.concatenate([seen, rng.gamma(16.0, 1 / 16, more // 10)])
        decided.append(mean_interval(values, np.arange(total), confidence=0.95).upper < 1.08)
    assert np.mean(decided) == pytest.approx(0.8, abs=0.07)


@pytest.mark.parametrize("seed", range(12))
def test_no_documents_more_are_asked_for_exactly_where_the_skewed_bounds_decide(seed: int) -> None:
    seen, documents = np.random.default_rng(seed).lognormal(0.0, 1.0, 16), np.arange(16)
    interval = mean_interval(seen, documents, confidence=0.95)
    for limit in (interval.lower, interval.upper, interval.estimate):
        for near in (0.99 * limit, 1.01 * limit):
            more = items_to_decide_mean(seen, documents, limit=near, confidence=0.95)
            assert (more == 0) == (interval.upper < near or interval.lower > near)


def test_the_smallest_detectable_mean_lies_above_the_limit_and_shrinks_with_documents() -> None:
    values = np.random.default_rng(9).gamma(4.0, 0.25, 64)
    few = smallest_detectable_mean(values[:16], np.arange(16), limit=1.0, confidence=0.95)
    many = smallest_detectable_mean(values, np.arange(64), limit=1.0, confidence=0.95)
    assert few > many > 1.0


def test_equal_values_are_decided_unless_they_sit_on_the_limit() -> None:
    zeros, clusters = np.zeros(8), np.arange(8)
    assert items_to_decide_mean(zeros, clusters, limit=0.1, confidence=0.95) == 0
    assert items_to_decide_mean(zeros, clusters, limit=0.0, confidence=0.95) is None


@pytest.mark.parametrize(("drop", "flip_rate"), [(0.1, 0.09), (0.05, 0.09), (0.3, 0.09)])
def test_the_items_that_detect_a_drop_have_the_power_and_many_fewer_have_not(
    drop: float, flip_rate: float
) -> None:
    n = items_to_detect(drop=drop, flip_rate=flip_rate, alpha=0.05)
    assert n is not None
    assert mcnemar_power(n=n, drop=drop, flip_rate=flip_rate, alpha=0.05) >= 0.8
    assert mcnemar_power(n=int(0.8 * n), drop=drop, flip_rate=flip_rate, alpha=0.05) < 0.8


def test_many_items_are_counted_by_the_normal_approximation_and_no_drop_needs_none() -> None:
    assert items_to_detect(drop=0.01, flip_rate=0.09, alpha=0.05) == pytest.approx(5565, abs=2)
    assert items_to_detect(drop=0.0001, flip_rate=0.09, alpha=0.05) is None
    assert items_to_detect(drop=0.0, flip_rate=0.09, alpha=0.05) is None
