"""How often the gate's statistics answer rightly, wrongly, or not at all. Prints the tables of docs/decision.md.

    python benchmarks/operating_characteristics.py [--repetitions 20000] [--seed 1] [--only decisions]

Simulation only: no engine, no files. One core, some minutes. Tables where a repetition is slow use fewer, as they say.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from functools import partial

import interval_coverage
import numpy as np
import numpy.typing as npt
from interval_coverage import Counts, Floats, each, first_true, percent, table
from scipy.optimize import fsolve
from scipy.special import expit
from scipy.stats import multivariate_normal, norm

from gatekeeper.stats.anytime import harm_e_value, non_inferiority_e_value
from gatekeeper.stats.binary import mcnemar_exact, score_statistic
from gatekeeper.stats.continuous import mean_less_p
from gatekeeper.stats.sequential import (
    DEFAULT_LOOKS,
    DEFAULT_SHAPE,
    NEGLIGIBLE_CHANCE,
    Looks,
    chance_to_decide,
    equal_looks,
    harm_boundaries,
    wang_tsiatis,
)

ITEMS, ACCURACY, FLIP_RATE, MARGIN, ALPHA = 1319, 0.76, 0.09, 0.02, 0.05
DROPS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08)
PASS, FAIL, OPEN = 1, -1, 0


def paired_items(
    rng: np.random.Generator, drop: float, looks: Sequence[int], repeats: int
) -> tuple[Counts, Counts, Counts]:
    """Cumulative (lost, gained, right under both) at each look, shape (repeats, looks)."""
    lost, gained = (FLIP_RATE + drop) / 2, (FLIP_RATE - drop) / 2
    chances = [lost, gained, ACCURACY - lost, 1 - ACCURACY - gained]
    batches = [rng.multinomial(batch, chances, size=repeats) for batch in np.diff(looks, prepend=0)]
    cells = np.stack(batches, axis=1).cumsum(axis=1)
    return cells[..., 0], cells[..., 1], cells[..., 2]


# --- the rules -------------------------------------------------------------------------------------------------------


def fixed_n(lost: Counts, gained: Counts) -> Counts:
    """The gate's rule at one look: margin shown, else harm shown, else open."""
    within = z_above_margin(lost, gained, np.full_like(lost, ITEMS)) > norm.isf(ALPHA)
    return np.where(within, PASS, np.where(exact_p(lost, gained) <= ALPHA, FAIL, OPEN))


def with_looks(lost: Counts, gained: Counts, looks: Sequence[int], shape: float) -> tuple[Counts, Floats]:
    """The gate's rule after every batch: answers and the share of the items used."""
    sizes, last = np.asarray(looks), len(looks) - 1
    design = wang_tsiatis(tuple((sizes / ITEMS).tolist()), alpha=ALPHA, shape=shape)
    n = np.broadcast_to(sizes, lost.shape)
    chance = partial(chance_to_decide, n_max=ITEMS, margin=MARGIN, final_alpha=design.nominal_alphas[-1])
    futile = each(lambda b, c, m: chance(lost=b, gained=c, n=m), lost, gained, n) < NEGLIGIBLE_CHANCE
    passes = first_true(z_above_margin(lost, gained, n) > norm.isf(design.nominal_alphas))
    fails = first_true(harm_shown(lost, gained, design))
    stop = np.minimum(np.minimum(passes, fails), np.minimum(first_true(futile), last))
    answers = np.where(passes == stop, PASS, np.where(fails == stop, FAIL, OPEN))
    return answers, sizes[stop] / ITEMS


def z_above_margin(lost: Counts, gained: Counts, n: Counts) -> Floats:
    return each(lambda b, c, m: score_statistic(lost=b, gained=c, n=m, difference=-MARGIN), lost, gained, n)


def harm_shown(lost: Counts, gained: Counts, design: Looks) -> npt.NDArray[np.bool_]:
    spendable = design.alpha * np.array(design.shares_spent)
    chunks = np.array_split(lost + gained, max(1, len(lost) // 250))
    return lost >= np.concatenate([harm_boundaries(chunk, spendable) for chunk in chunks])


def exact_p(lost: Counts, gained: Counts) -> Floats:
    return each(lambda b, c: mcnemar_exact(lost=b, gained=c), lost, gained)


def peers(lost: Counts, gained: Counts, right: Counts) -> dict[str, Counts]:
    """Other projects' rules on the same items; the measured baseline stands in for their stored reference."""
    before, after = (right + lost) / ITEMS, (right + gained) / ITEMS
    unpaired_se = np.sqrt((before * (1 - before) + after * (1 - after)) / ITEMS)
    damage = (lost - gained) / ITEMS
    reach = 1.96 * np.sqrt(((lost + gained) / ITEMS - damage**2) / ITEMS)
    two_way = {
        "fixed tolerance 0.08 (vLLM CI)": after < before - 0.08,
        "relative tolerance 0.08 (vLLM CI)": after < before * (1 - 0.08),
        "threshold at sigma = 50 points (TensorRT-LLM)": after
        < before - 1.645 * math.sqrt(2 * 0.5**2 / ITEMS),
        "unpaired 2 sigma (vLLM compare page)": after - before < -2 * unpaired_se,
        "exact McNemar, fixed n": exact_p(lost, gained) <= ALPHA,
    }
    three_way = np.where(damage - reach > MARGIN, FAIL, np.where(damage + reach <= MARGIN, PASS, OPEN))
    answers = {name: np.where(fails, FAIL, PASS) for name, fails in two_way.items()}
    return {**answers, "damage bounds against margin (NeMo Evaluator)": three_way}


# --- tables ----------------------------------------------------------------------------------------------------------


def decisions(rng: np.random.Generator, repeats: int) -> None:
    """Share of FAIL / PASS / INCONCLUSIVE by rule and true drop, and the items used."""
    looks = equal_looks(ITEMS)
    answers: dict[str, dict[float, Counts]] = {}
    used = {}
    for drop in DROPS:
        lost, gained, right = paired_items(rng, drop, looks, repeats)
        final = lost[:, -1], gained[:, -1]
        sequential, used[drop] = with_looks(lost, gained, looks, DEFAULT_SHAPE)
        rules = {"gatekeeper, fixed n": fixed_n(*final), f"gatekeeper, {DEFAULT_LOOKS} looks": sequential}
        for name, answer in {**rules, **peers(*final, right[:, -1])}.items():
            answers.setdefault(name, {})[drop] = answer
    columns = [f"drop {100 * drop:.0f}" for drop in DROPS]
    rows = [
        [name, *(" / ".join(percent((row[d] == a).mean()) for a in (FAIL, PASS, OPEN)) for d in DROPS)]
        for name, row in answers.items()
    ]
    table("FAIL / PASS / INCONCLUSIVE, % of gates, by true drop in points", ["rule", *columns], rows)
    shares = [["mean", *(percent(used[d].mean()) for d in DROPS)]]
    shares.append(["90th percentile", *(percent(np.quantile(used[d], 0.9)) for d in DROPS)])
    table(f"Items used with {DEFAULT_LOOKS} looks, % of {ITEMS}", ["", *columns], shares)


def tradeoff(rng: np.random.Generator, repeats: int) -> None:
    """Early stopping: what a smaller drop's detection costs in items at a larger one."""
    rows = []
    for count in (6, 12, 20):
        looks = equal_looks(ITEMS, count)
        samples = [paired_items(rng, drop, looks, min(repeats, 4000))[:2] for drop in (0.02, 0.05)]
        for shape in (0.0, 0.125, 0.25, 0.375, 0.5):
            (detected, _), (_, used) = (with_looks(*sample, looks, shape) for sample in samples)
            rows.append([str(count), str(shape), percent((detected == FAIL).mean()), percent(used.mean())])
    header = ["looks", "shape", "FAIL at 2 points, %", "items used at 5 points, %"]
    table("The trade-off of early stopping (at most 4,000 repetitions)", header, rows)


def rivals(rng: np.random.Generator, repeats: int) -> None:
    """The exact group-sequential test beside its rivals, on the same looks."""
    looks = np.asarray(equal_looks(ITEMS))
    design = wang_tsiatis(tuple((looks / ITEMS).tolist()), alpha=ALPHA)
    nominal = np.array(design.nominal_alphas)
    rows: dict[str, list[str]] = {}
    for drop in (0.0, 0.02, 0.05):
        lost, gained, _ = paired_items(rng, drop, looks.tolist(), min(repeats, 4000))
        n = np.broadcast_to(looks, lost.shape)
        e_harm = each(lambda b, c: harm_e_value(lost=b, gained=c), lost, gained)
        e_pass = each(partial(non_inferior, margin=MARGIN), lost, gained, n)
        crossed = {
            "FAIL, exact spending on discordant pairs": harm_shown(lost, gained, design),
            "FAIL, McNemar at nominal levels": exact_p(lost, gained) <= nominal,
            "FAIL, e-value": e_harm >= 1 / ALPHA,
            "PASS, score interval at nominal levels": z_above_margin(lost, gained, n) > norm.isf(nominal),
            "PASS, e-value": e_pass >= 1 / ALPHA,
        }
        for name, mask in crossed.items():
            used = looks[np.minimum(first_true(mask), len(looks) - 1)].mean() / ITEMS
            rows.setdefault(name, [name]).append(f"{percent(mask.any(axis=1).mean())} ({percent(used)})")
    title = "Each sequential test alone: ever decided, % (items used, %); at most 4,000 repetitions"
    table(title, ["test", "drop 0", "drop 2", "drop 5"], rows.values())


def non_inferior(lost: int, gained: int, n: int, *, margin: float) -> float:
    return non_inferiority_e_value(lost=lost, gained=gained, n=n, margin=margin)


def scores(rng: np.random.Generator, repeats: int) -> None:
    """What the probability of the right answer adds to right and wrong, on items with a latent margin.

    An item's margin is normal, the answer is right when it is positive, its probability is logistic(2 x margin). The
    candidate shifts every margin and adds noise, so that 9 % of the answers flip and the accuracy drops as stated.
    """
    rows = []
    for drop in (0.0, 0.01, 0.02):
        noise, shift = latent_change(drop)
        row = [f"{100 * drop:.0f}"]
        for n in (300, ITEMS):
            before = rng.normal(norm.ppf(ACCURACY), 1.0, (min(repeats, 2000), n))
            after = before - shift + noise * rng.normal(size=before.shape)
            lost, gained = (((a > 0) & (b <= 0)).sum(axis=1) for a, b in ((before, after), (after, before)))
            deltas = expit(2 * after) - expit(2 * before)
            by_score = [mean_less_p(d, np.arange(n), threshold=0.0) <= ALPHA for d in deltas]
            row.append(f"{percent((exact_p(lost, gained) <= ALPHA).mean())} / {percent(np.mean(by_score))}")
        rows.append(row)
    title = "FAIL by McNemar / by the paired score, %; at most 2,000 repetitions"
    table(title, ["drop, points", "300 items", f"{ITEMS:,} items"], rows)


def latent_change(drop: float) -> tuple[float, float]:
    """Noise and shift of a unit-normal margin that give `FLIP_RATE` flips and the stated drop."""
    center = norm.ppf(ACCURACY)

    def miss(change: Sequence[float]) -> tuple[float, float]:
        noise, shift = change
        correlation = 1 / math.hypot(1, noise)
        accuracy = norm.cdf((center - shift) * correlation)
        both = multivariate_normal.cdf(
            [center, (center - shift) * correlation], cov=[[1, correlation], [correlation, 1]]
        )
        return accuracy - (ACCURACY - drop), ACCURACY + accuracy - 2 * both - FLIP_RATE

    noise, shift = fsolve(miss, [0.35, drop * 3])
    return float(noise), float(shift)


TABLES = {
    "decisions": decisions,
    "tradeoff": tradeoff,
    "rivals": rivals,
    "scores": scores,
    "binary": interval_coverage.paired_difference,
    "mean": interval_coverage.mean,
    "mean-looks": interval_coverage.mean_at_looks,
    "ratio": interval_coverage.ratio,
    "confidence-sequence": interval_coverage.confidence_sequence,
    "kept-share": interval_coverage.kept_share,
}


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", choices=TABLES, action="append", help="print this table only; may be repeated"
    )
    options = parser.parse_args(argv)
    for k, (name, print_tables) in enumerate(TABLES.items()):
        if options.only is None or name in options.only:
            print_tables(np.random.default_rng([options.seed, k]), options.repetitions)


if __name__ == "__main__":
    main(sys.argv[1:])
