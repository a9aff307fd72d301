"""Coverage of every interval the gate uses, and of those it does not use; tables for `operating_characteristics`.

Each function prints tables of how often, in percent, a lower and an upper bound hold. The nominal figure is 95.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap
from scipy.stats import t as student

from gatekeeper.stats.anytime import mean_confidence_sequence, mean_greater_e_value
from gatekeeper.stats.binary import paired_difference_interval
from gatekeeper.stats.continuous import mean_greater_p, mean_interval, mean_less_p
from gatekeeper.stats.ratio import log_ratio_interval, turns_estimate
from gatekeeper.stats.relative import ratio_lower_bound
from gatekeeper.stats.sequential import DEFAULT_SHAPE, SHAPE_FOR_MEANS, equal_looks, wang_tsiatis

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Bounds = tuple[Floats, Floats]
Sample = Callable[[np.random.Generator, tuple[int, ...]], Floats]

CONFIDENCE = 0.95


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    print(f"\n### {title}\n", *("| " + " | ".join(line) + " |" for line in lines), sep="\n", flush=True)


def percent(share: float | np.floating) -> str:
    return f"{100 * share:.1f}"


def held(lower: Floats, upper: Floats, truth: float) -> str:
    return f"{percent((lower <= truth).mean())} / {percent((upper >= truth).mean())}"


def each(f: Callable[..., float], *counts: Counts) -> Floats:
    """f of every combination of counts, calling it once per distinct one. Shapes alike in and out."""
    stacked = np.stack([c.ravel() for c in counts], axis=1)
    distinct, where = np.unique(stacked, axis=0, return_inverse=True)
    return np.array([f(*row) for row in distinct.tolist()], dtype=float)[where].reshape(counts[0].shape)


def first_true(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Index of the first True in each row; the row length where there is none."""
    return np.where(mask.any(axis=1), mask.argmax(axis=1), mask.shape[1])


# --- paired binary items ---------------------------------------------------------------------------------------------


def paired_difference(rng: np.random.Generator, repeats: int) -> None:
    rows = []
    for flips, drop in ((0.02, 0.0), (0.09, 0.0), (0.09, 0.02), (0.09, 0.05), (0.3, 0.1)):
        row = [f"{100 * flips:.0f} % flips, drop {100 * drop:.0f}"]
        for n in (30, 100, 300, 1000):
            counts = rng.multinomial(n, [(flips + drop) / 2, (flips - drop) / 2, 1 - flips], size=repeats)
            lower = each(partial(difference_bound, n, "lower"), counts[:, 0], counts[:, 1])
            upper = each(partial(difference_bound, n, "upper"), counts[:, 0], counts[:, 1])
            row.append(held(lower, upper, -drop))
        rows.append(row)
    table("Paired difference (Tango), by items", ["truth", "30", "100", "300", "1,000"], rows)


def difference_bound(n: int, side: str, lost: int, gained: int) -> float:
    interval = paired_difference_interval(lost=lost, gained=gained, n=n, confidence=CONFIDENCE)
    return float(getattr(interval, side))


def kept_share(rng: np.random.Generator, repeats: int) -> None:
    """The candidate keeps `ratio` of the baseline's accuracy; flips beyond that loss go both ways alike."""
    rows = []
    for accuracy, flips, ratio in (
        (0.76, 0.02, 1.0),
        (0.76, 0.09, 0.99),
        (0.76, 0.09, 0.95),
        (0.4, 0.09, 0.9),
    ):
        row = [f"accuracy {accuracy:g}, {100 * flips:.0f} % flips, {100 * ratio:.0f} % kept"]
        drop = accuracy * (1 - ratio)
        lost, gained = (flips + drop) / 2, (flips - drop) / 2
        for n in (30, 100, 300, 1000):
            cells = rng.multinomial(n, [accuracy - lost, lost, gained, 1 - accuracy - gained], size=repeats)
            lower = each(partial(kept_bound, n), *cells.T[:3])
            row.append(percent((lower <= ratio).mean()))
        rows.append(row)
    header = ["truth", "30", "100", "300", "1,000"]
    table("Share of the baseline's accuracy that is kept, lower bound, by items", header, rows)


def kept_bound(n: int, both: int, lost: int, gained: int) -> float:
    return ratio_lower_bound(both=both, lost=lost, gained=gained, n=n, confidence=CONFIDENCE)


# --- means over documents --------------------------------------------------------------------------------------------

DOCUMENTS: dict[str, Sample] = {
    "normal": lambda rng, size: rng.normal(1.0, 1.0, size),
    "KL-like": lambda rng, size: rng.lognormal(-0.125, 0.5, size) * rng.gamma(15.1, 1 / 15.1, size),
    "exponential": lambda rng, size: rng.exponential(1.0, size),
    "lognormal(1)": lambda rng, size: rng.lognormal(-0.5, 1.0, size),
    "one in ten damaged fivefold": lambda rng, size: (
        rng.lognormal(-0.045, 0.3, size) * np.where(rng.random(size) < 0.1, 5.0, 1.0) / 1.4
    ),
}
"""Means of single documents, all with expectation 1. KL-like: lognormal(0.5) between documents, and within each the
variance of a mean of 128 lognormal(1.5) tokens."""


def shipped(x: Floats) -> Bounds:
    bounds = [mean_interval(row, np.arange(row.size), confidence=CONFIDENCE) for row in x]
    return np.array([b.lower for b in bounds]), np.array([b.upper for b in bounds])


def plain_t(x: Floats) -> Bounds:
    reach = student.ppf(CONFIDENCE, x.shape[1] - 1) * x.std(axis=1, ddof=1) / math.sqrt(x.shape[1])
    return x.mean(axis=1) - reach, x.mean(axis=1) + reach


def log_t(x: Floats) -> Bounds:
    """t on the scale of the log of the mean (delta method)."""
    mean = x.mean(axis=1)
    reach = (plain_t(x)[1] - mean) / mean
    return mean * np.exp(-reach), mean * np.exp(reach)


def bca(x: Floats) -> Bounds:
    level, rng = 2 * CONFIDENCE - 1, np.random.default_rng(0)
    results = [
        bootstrap((part,), np.mean, axis=1, n_resamples=999, confidence_level=level, method="BCa", rng=rng)
        for part in np.array_split(x, max(1, x.size // 4000))
    ]
    low, high = zip(*((r.confidence_interval.low, r.confidence_interval.high) for r in results), strict=True)
    return np.concatenate(low), np.concatenate(high)


def bootstrap_t(x: Floats) -> Bounds:
    rng = np.random.default_rng(0)
    n, lower, upper = x.shape[1], np.empty(len(x)), np.empty(len(x))
    for i, row in enumerate(x):
        resampled = row[rng.integers(0, n, (999, n))]
        with np.errstate(divide="ignore", invalid="ignore"):
            ts = np.nan_to_num((resampled.mean(axis=1) - row.mean()) / resampled.std(axis=1, ddof=1))
        low, high = np.sort(ts)[[49, 949]]
        lower[i], upper[i] = row.mean() - high * row.std(ddof=1), row.mean() - low * row.std(ddof=1)
    return lower, upper


def mean(rng: np.random.Generator, repeats: int) -> None:
    sizes = (4, 8, 16, 30, 100, 300, 1000)
    rows = [
        [name, *(held(*shipped(sample(rng, (min(repeats, 4000), n))), 1.0) for n in sizes)]
        for name, sample in DOCUMENTS.items()
    ]
    header = ["document means", *(f"{n:,}" for n in sizes)]
    table("Mean over documents, by documents (at most 4,000 repetitions)", header, rows)
    methods = {"shipped": shipped, "t": plain_t, "log t": log_t, "bootstrap-t": bootstrap_t, "BCa": bca}
    rows = []
    for name in ("KL-like", "exponential", "lognormal(1)", "one in ten damaged fivefold"):
        x = DOCUMENTS[name](rng, (min(repeats, 4000), 16))
        rows.append([name, *(held(*method(x), 1.0) for method in methods.values())])
    table("Methods for a mean over 16 documents", ["document means", *methods], rows)


def mean_at_looks(rng: np.random.Generator, repeats: int) -> None:
    """Up to 48 KL-like documents against a limit of 1, read at several looks with nominal levels."""
    sizes = np.arange(8, 49, 8)
    designs = {
        "one look": (sizes == 48, SHAPE_FOR_MEANS),
        "from 16 documents, shape 0 (default)": (sizes >= 16, SHAPE_FOR_MEANS),
        f"from 8 documents, shape {DEFAULT_SHAPE}": (sizes >= 8, DEFAULT_SHAPE),
    }
    truths = (0.5, 0.75, 1.0, 1.25, 1.5)
    samples = [truth * DOCUMENTS["KL-like"](rng, (min(repeats, 2000), 48)) for truth in truths]
    p_values = [[p_at_looks(test, x, sizes) for test in (mean_less_p, mean_greater_p)] for x in samples]
    rows = []
    for name, (looks, shape) in designs.items():
        fractions = tuple((sizes[looks] / 48).tolist())
        levels = np.array(wang_tsiatis(fractions, alpha=0.05, shape=shape).nominal_alphas)
        row = [name]
        for below, above in p_values:
            passed, failed = below[:, looks] < levels, above[:, looks] < levels
            used = sizes[looks][np.minimum(first_true(passed | failed), levels.size - 1)].mean() / 48
            shares = [percent(m.any(axis=1).mean()) for m in (passed, failed)]
            row.append(f"{shares[0]} / {shares[1]} ({percent(used)})")
        rows.append(row)
    header = ["design", *(f"{truth} x limit" for truth in truths)]
    table("Mean at looks: PASS / FAIL, % (documents used, %); at most 2,000 repetitions", header, rows)


def p_at_looks(test: Callable[..., float], x: Floats, sizes: npt.NDArray[np.int_]) -> Floats:
    return np.array([[test(row[:n], np.arange(n), threshold=1.0) for n in sizes] for row in x])


# --- ratios and confidence sequences ---------------------------------------------------------------------------------


def ratio(rng: np.random.Generator, repeats: int) -> None:
    """6 % noise per round: of one launch per arm, and of pairs of launches in turns, which share a drift of 12 %."""
    row = ["unpaired"]
    for n in (4, 8, 30, 100):
        rounds = np.exp(rng.normal(0, 0.06, (min(repeats, 4000), 2, n)))
        bounds = [
            log_ratio_interval(baseline, candidate, confidence=CONFIDENCE) for baseline, candidate in rounds
        ]
        row.append(held(np.array([b.lower for b in bounds]), np.array([b.upper for b in bounds]), 1.0))
    table("Speed ratio, by rounds (at most 4,000 repetitions)", ["rounds", "4", "8", "30", "100"], [row])
    rows = [
        [f"{percent(between)} %", *(turns(rng, min(repeats, 4000), between, pairs) for pairs in (1, 2, 3, 6))]
        for between in (0.0, 0.03, 0.1)
    ]
    header = ["noise of launches", "1 + 1", "2 + 2", "3 + 3", "6 + 6"]
    table(
        "Speed ratio in turns, by pairs + pairs of equal launches (at most 4,000 repetitions)", header, rows
    )


def turns(rng: np.random.Generator, repeats: int, between: float, pairs: int) -> str:
    """Four rounds in each pair; the drift that both sides of a round share cancels before anything is estimated."""
    lower, upper = np.empty(repeats), np.empty(repeats)
    for i in range(repeats):
        launches = rng.normal(0, between, (2 * pairs, 1))
        drift = rng.normal(0, 0.12, (2 * pairs, 4))
        companion, arm = drift + rng.normal(0, 0.06, (2, 2 * pairs, 4))
        logs = arm + launches - companion
        estimate = turns_estimate(list(logs[:pairs]), unchanged=logs[pairs:].mean(axis=1))
        bounds = estimate.interval(confidence=CONFIDENCE)
        lower[i], upper[i] = bounds.lower, bounds.upper
    return held(lower, upper, 1.0)


def confidence_sequence(rng: np.random.Generator, repeats: int) -> None:
    """Whether the truth is ever excluded at ten looks, and the final width beside that of the fixed-n interval."""
    samples: dict[str, tuple[float, Sample]] = {
        "beta(2, 8)": (0.2, lambda rng, size: rng.beta(2, 8, size)),
        "disagreement, Bernoulli(0.1)": (0.1, lambda rng, size: rng.binomial(1, 0.1, size).astype(float)),
    }
    rows = []
    for name, (truth, sample) in samples.items():
        row = [name]
        for n in (30, 100, 300, 1000):
            x = sample(rng, (min(repeats, 2000), n))
            lower = np.array([ever_excluded(r, 0.0, truth, n) for r in x])
            upper = np.array([ever_excluded(-r, -1.0, -truth, n) for r in x])
            sequence = partial(mean_confidence_sequence, lowest=0.0, highest=1.0, confidence=CONFIDENCE)
            widths = [(i.upper - i.lower) for i in map(sequence, x[:20])]
            low, high = shipped(x[:20])
            factor = np.mean(widths) / np.mean(high - low)
            row.append(
                f"{percent(1 - lower.mean())} / {percent(1 - upper.mean())}, {factor:.1f} times as wide"
            )
        rows.append(row)
    title = "Confidence sequence at all looks together, by items (at most 2,000 repetitions)"
    table(title, ["values", "30", "100", "300", "1,000"], rows)


def ever_excluded(x: Floats, lowest: float, truth: float, n: int) -> bool:
    e_values = (mean_greater_e_value(x[:k], lowest=lowest, threshold=truth) for k in equal_looks(n, 10))
    return max(e_values) >= 1 / (1 - CONFIDENCE)
