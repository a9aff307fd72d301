"""Group-sequential designs: published constants, exact error rates, and p-values that agree with boundaries."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom, norm

from gatekeeper.stats.binary import paired_difference_interval
from gatekeeper.stats.sequential import (
    Looks,
    chance_to_decide,
    chance_to_decide_mean,
    equal_looks,
    harm_boundaries,
    harm_p,
    p_over_looks,
    price_of_looks,
    wang_tsiatis,
)

FIVE = (0.2, 0.4, 0.6, 0.8, 1.0)


def design(n_max: int = 1319, alpha: float = 0.05) -> tuple[tuple[int, ...], Looks]:
    sizes = equal_looks(n_max)
    return sizes, wang_tsiatis(tuple(n / n_max for n in sizes), alpha=alpha)


@pytest.mark.parametrize(
    ("count", "shape", "constant"),
    [(5, 0.0, 2.040), (5, 0.25, 2.136), (5, 0.5, 2.413), (10, 0.0, 2.087), (10, 0.5, 2.555)],
)
def test_the_constants_are_the_published_ones(count: int, shape: float, constant: float) -> None:
    """Jennison and Turnbull (2000), tables 2.1, 2.3 and 2.9: two-sided 0.05, so 0.025 on one side."""
    looks = wang_tsiatis(tuple((k + 1) / count for k in range(count)), alpha=0.025, shape=shape)
    assert norm.isf(looks.nominal_alphas[-1]) == pytest.approx(constant, abs=0.001)


def test_a_single_look_is_the_ordinary_test() -> None:
    looks = wang_tsiatis((1.0,), alpha=0.05)
    assert list(looks.nominal_alphas) == pytest.approx([0.05])
    assert looks.shares_spent == (1.0,)


@pytest.mark.parametrize("fractions", [(), (0.5,), (0.5, 0.5, 1.0), (0.0, 1.0), (0.4, 1.2)])
def test_impossible_looks_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="look fractions"):
        wang_tsiatis(fractions, alpha=0.05)


def test_equal_looks_end_at_the_last_item_and_never_repeat() -> None:
    assert equal_looks(1319)[-1] == 1319
    assert equal_looks(5) == (1, 2, 3, 4, 5)
    with pytest.raises(ValueError, match="at least one"):
        equal_looks(0)


def test_boundaries_of_one_look_are_the_exact_mcnemar_test() -> None:
    boundary = int(harm_boundaries([40], [0.05])[0])
    assert binom.sf(boundary - 1, 40, 0.5) <= 0.05 < binom.sf(boundary - 2, 40, 0.5)


def test_too_few_pairs_give_a_boundary_out_of_reach() -> None:
    assert harm_boundaries([0, 3], [0.01, 0.05]).tolist() == [1, 4]


@pytest.mark.parametrize("discordant", [[5, 4], [-1, 2]])
def test_counts_that_shrink_are_refused(discordant: list[int]) -> None:
    with pytest.raises(ValueError, match="cannot be negative or decrease"):
        harm_boundaries(discordant, [0.01, 0.05])


@pytest.mark.parametrize(
    "discordant", [[9, 18, 33, 40, 61], [0, 0, 2, 30, 31], [5, 5, 5, 5, 5], [80, 90, 100, 110, 200]]
)
def test_the_exact_chance_of_ever_crossing_never_exceeds_alpha(discordant: list[int]) -> None:
    spendable = 0.05 * np.array(wang_tsiatis(FIVE, alpha=0.05).shares_spent)
    boundaries = harm_boundaries(discordant, spendable)
    still_going = {0: 1.0}
    crossed, pairs = 0.0, 0
    for total, boundary in zip(discordant, boundaries.tolist(), strict=True):
        reached: dict[int, float] = {}
        for lost, chance in still_going.items():
            for more in range(total - pairs + 1):
                here = chance * math.comb(total - pairs, more) / 2 ** (total - pairs)
                reached[lost + more] = reached.get(lost + more, 0.0) + here
        crossed += sum(chance for lost, chance in reached.items() if lost >= boundary)
        still_going = {lost: chance for lost, chance in reached.items() if lost < boundary}
        pairs = total
    assert crossed <= 0.05 + 1e-12


Counts = npt.NDArray[np.int64]


def simulated(drop: float, sizes: tuple[int, ...], repeats: int, seed: int) -> tuple[Counts, Counts]:
    """Cumulative lost and gained items at each look, shape (repeats, looks)."""
    rng = np.random.default_rng(seed)
    chances = [(0.09 + drop) / 2, (0.09 - drop) / 2, 0.91]
    batches = [rng.multinomial(batch, chances, size=repeats) for batch in np.diff(sizes, prepend=0)]
    counts = np.stack(batches, axis=1).cumsum(axis=1)
    return counts[..., 0], counts[..., 1]


def test_looking_twelve_times_keeps_its_promises_on_gsm8k_sized_suites() -> None:
    sizes, looks = design()
    spendable = 0.05 * np.array(looks.shares_spent)
    lost, gained = simulated(0.0, sizes, 2000, seed=1)
    assert (lost >= harm_boundaries(lost + gained, spendable)).any(axis=1).mean() < 0.065
    lost, gained = simulated(0.02, sizes, 2000, seed=2)
    assert (lost >= harm_boundaries(lost + gained, spendable)).any(axis=1).mean() > 0.68
    lost, gained = simulated(0.05, sizes, 500, seed=3)
    crossed = lost >= harm_boundaries(lost + gained, spendable)
    used = np.asarray(sizes)[crossed.argmax(axis=1)] / sizes[-1]
    assert crossed.any(axis=1).all()
    assert used.mean() < 0.265


def test_a_drop_equal_to_the_margin_rarely_passes_at_any_look() -> None:
    sizes, looks = design()
    lost, gained = simulated(0.02, sizes, 400, seed=4)
    passes = [
        any(
            paired_difference_interval(lost=int(b), gained=int(c), n=n, confidence=1 - a).lower > -0.02
            for b, c, n, a in zip(*counts, sizes, looks.nominal_alphas, strict=True)
        )
        for counts in zip(lost, gained, strict=True)
    ]
    assert np.mean(passes) < 0.08


def test_the_exact_p_value_and_the_boundary_agree_at_the_designs_alpha() -> None:
    sizes, looks = design()
    lost, gained = simulated(0.015, sizes, 25, seed=5)
    boundaries = harm_boundaries(lost + gained, 0.05 * np.array(looks.shares_spent))
    for row in range(25):
        crossed = bool((lost[row] >= boundaries[row]).any())
        p = harm_p(lost[row].tolist(), (lost + gained)[row].tolist(), looks)
        assert not (p <= 0.05 and not crossed)
        assert not (p > 0.0527 and crossed)


def test_the_exact_p_value_only_falls_as_looks_are_added() -> None:
    sizes, looks = design()
    lost, gained = simulated(0.03, sizes, 1, seed=6)
    pairs = (lost + gained)[0].tolist()
    ps = [harm_p(lost[0, :k].tolist(), pairs[:k], looks) for k in range(1, len(sizes) + 1)]
    assert ps == sorted(ps, reverse=True)
    assert ps[-1] < 0.05


def test_the_combined_p_value_is_alpha_where_a_look_just_reaches_its_nominal_level() -> None:
    looks = wang_tsiatis(FIVE, alpha=0.05)
    assert p_over_looks([0.9, looks.nominal_alphas[1]], looks) == pytest.approx(0.05, abs=1e-6)
    assert p_over_looks([0.9, looks.nominal_alphas[1] / 2], looks) < 0.05
    assert p_over_looks([1.0], looks) == pytest.approx(1.0)
    assert p_over_looks([0.0], looks) < 1e-9
    for bad in (math.nan, -0.1, 1.2):
        with pytest.raises(ValueError, match="one p-value"):
            p_over_looks([bad], looks)


def chance(lost: int, gained: int, n: int) -> float:
    return chance_to_decide(lost=lost, gained=gained, n=n, n_max=1319, margin=0.02, final_alpha=0.02)


def test_the_chance_to_decide_falls_to_nothing_between_the_answers() -> None:
    assert chance(10, 10, 200) > 0.3
    assert chance(63, 50, 1250) < 0.01
    assert chance(66, 53, 1319) == 0
    assert chance(100, 19, 1319) == 1
    with pytest.raises(ValueError, match="n_max"):
        chance(1, 1, 2000)


@pytest.mark.parametrize(("shape", "inflation"), [(0.5, 1.229), (0.0, 1.028)])
def test_the_price_of_looks_is_the_published_inflation_of_the_number_of_items(
    shape: float, inflation: float
) -> None:
    """Five looks, two-sided 5 %, power 80 %: Jennison and Turnbull (2000), tables 2.2 and 2.4."""
    design = wang_tsiatis((0.2, 0.4, 0.6, 0.8, 1.0), alpha=0.025, shape=shape)
    assert price_of_looks(design, power=0.8) ** 2 == pytest.approx(inflation, abs=0.001)


def test_the_predictive_chance_of_a_mean_is_certain_at_the_end_and_bounded_before() -> None:
    rng = np.random.default_rng(3)
    values, documents = rng.normal(0.02, 0.01, 16), np.arange(16)
    limits = {"limit": 0.03, "harm_from": 0.03}
    assert chance_to_decide_mean(values, documents, **limits, share=1.0, final_alpha=0.05) == 1.0
    assert 0.9 < chance_to_decide_mean(values, documents, **limits, share=0.5, final_alpha=0.05) <= 1.0
    near = {"limit": 0.0201, "harm_from": 0.5}
    assert chance_to_decide_mean(values, documents, **near, share=0.9, final_alpha=0.05) < 0.2
    with pytest.raises(ValueError, match="share"):
        chance_to_decide_mean(values, documents, **limits, share=0.0, final_alpha=0.05)
