"""What damage of graded strength to cached keys and values costs in answers, beside what it does to KL, NLL and top-1.

    python benchmarks/calibration.py                          # benchmarks/recordings, some minutes of one core

Prints the tables of docs/decision.md: every damaged arm against the reference launch; the fitted relation between KL
and loss, with the KL at which the loss reaches a margin; and how often the right-or-wrong test and the score test find
each damage with a part of the items. Bounds are the gate's own; the intervals of the fits come from documents and items
drawn anew, the same ones in every arm.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from arms import ARMS, Damage
from interval_coverage import Floats, percent, table
from recorded_gates import FOLDER
from recordings import REFERENCE, Recording, read_recordings
from scipy.optimize import least_squares

from gatekeeper.stats.binary import mcnemar_exact, paired_difference_interval
from gatekeeper.stats.continuous import mean_interval, mean_less_p

Indices = npt.NDArray[np.intp]

CONFIDENCE: Final = 0.95
CHANCE: Final = {"gk_recall": 0.25, "gk_agreement": 0.5, "gk_plausible": 0.5, "gk_facts": 0.25}
"""The share of right answers of a guess, by task."""
RECALL: Final = "gk_recall"
LEAST_ERROR: Final = 0.002
"""Standard error that no arm goes below in a fit: an arm in which no item flips is not known without error."""
MARGINS: Final = (0.01, 0.02, 0.05, 0.10)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm against the reference: a mean per document, shape (documents,), and per item, shape (items,).

    NaN stands for what a smaller recording leaves out.
    """

    name: str
    kl: Floats
    nll: Floats
    agreement: Floats
    correct: Floats
    probability: Floats

    @classmethod
    def of(cls, recording: Recording, documents: Sequence[str], items: Sequence[str]) -> Arm:
        """Documents and items in the given order."""
        scored = {document.item_id: document for part in recording.stored for document in part.documents}
        values = {
            (row.metric, row.item_id): row.value for part in recording.stored for row in part.measurements
        }

        def per_document(field: str) -> Floats:
            return np.array(
                [np.mean(getattr(scored[d], field)) if d in scored else np.nan for d in documents]
            )

        def per_item(metric: str) -> Floats:
            return np.array([values.get((metric, item), np.nan) for item in items], dtype=float)

        return cls(
            name=recording.name, kl=per_document("kl"), nll=per_document("nll"), agreement=per_document("agreement"),
            correct=per_item("correct"), probability=per_item("right_choice_probability"),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The reference, the damaged arms, and the task of each item."""

    reference: Arm
    damaged: tuple[Arm, ...]
    tasks: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> Recorded:
        """All arms of a folder that do damage."""
        recordings = read_recordings(folder, tuple(ARMS))
        rows = (row for part in recordings[REFERENCE].stored for row in part.measurements)
        items = sorted({row.item_id: row.cluster for row in rows}.items())
        names = [item for item, _ in items]
        documents = sorted(d.item_id for part in recordings[REFERENCE].stored for d in part.documents)
        arms = {name: Arm.of(recording, documents, names) for name, recording in recordings.items()}
        return cls(
            reference=arms[REFERENCE], damaged=tuple(arm for name, arm in arms.items() if ARMS[name] != Damage()),
            tasks=tuple(task for _, task in items),
        )  # fmt: skip

    def of_task(self, task: str) -> Indices:
        """The indices of a task's items."""
        return np.flatnonzero(np.array(self.tasks) == task)

    @property
    def by_damage(self) -> list[Arm]:
        """The damaged arms, least KL first."""
        return sorted(self.damaged, key=lambda arm: float(np.nanmean(arm.kl)))


# --- every damage ----------------------------------------------------------------------------------------------------


def damages(recorded: Recorded) -> None:
    """One row per arm, least KL first; one-sided 95 % bounds."""
    rows = [
        [arm.name, *_token_cells(arm), *_item_cells(recorded.reference, arm, np.arange(len(recorded.tasks))),
         *_item_cells(recorded.reference, arm, recorded.of_task(RECALL))]
        for arm in recorded.by_damage
    ]  # fmt: skip
    header = ["damage", "KL", "NLL change", "top-1, %", "accuracy", "right-choice probability",
              "recall: accuracy", "recall: right-choice probability"]  # fmt: skip
    table("Damage of graded strength, changes in points (95 % bounds, each one-sided):", header, rows)


def _token_cells(arm: Arm) -> Iterator[str]:
    scored = np.flatnonzero(np.isfinite(arm.kl))
    for values, scale, form in ((arm.kl, 1, ".4f"), (arm.nll, 1, "+.4f"), (arm.agreement, 100, ".1f")):
        interval = mean_interval(scale * values[scored], scored, confidence=CONFIDENCE)
        yield f"{interval.estimate:{form}} ({interval.lower:{form}} to {interval.upper:{form}})"


def _item_cells(reference: Arm, arm: Arm, chosen: Indices) -> Iterator[str]:
    chosen = chosen[np.isfinite(arm.correct[chosen])]
    before, after = reference.correct[chosen] > 0, arm.correct[chosen] > 0
    change = (arm.probability - reference.probability)[chosen]
    for interval in (
        paired_difference_interval(
            lost=int((before & ~after).sum()), gained=int((~before & after).sum()), n=chosen.size,
            confidence=CONFIDENCE,
        ),
        mean_interval(change, chosen, confidence=CONFIDENCE),
    ):  # fmt: skip
        yield f"{100 * interval.estimate:+.1f} ({100 * interval.lower:+.1f} to {100 * interval.upper:+.1f})"


# --- the relation ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Curve:
    """loss = ceiling * (1 - exp(-(KL / scale) ** power)): a power law at first, a model that guesses in the end."""

    ceiling: float
    scale: float
    power: float

    def kl_at(self, loss: float) -> float:
        """The KL, in nats per token, at which the loss is reached."""
        return float(self.scale * (-np.log1p(-loss / self.ceiling)) ** (1 / self.power))

    @classmethod
    def fitted(cls, kl: Floats, loss: Floats, error: Floats, *, ceiling: float) -> Curve:
        """Least squares of the arms, each weighted by the standard error of its loss; shapes (arms,)."""

        def misfit(parameters: Floats) -> Floats:
            expected = ceiling * -np.expm1(-((kl / np.exp(parameters[0])) ** parameters[1]))
            return np.asarray((expected - loss) / error)

        found = least_squares(misfit, x0=[0.0, 0.8], bounds=([-8.0, 0.2], [8.0, 2.5]), loss="soft_l1").x
        return cls(ceiling=ceiling, scale=float(np.exp(found[0])), power=float(found[1]))


KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "all damage": ("",),
    "rounding": ("fp8", "int"),
    "noise in keys": ("keys",),
    "noise in values": ("values",),
}
"""Kind -> how the names of its arms begin."""


def relation(recorded: Recorded, *, draws: int, seed: int) -> None:
    """For each loss and kind of damage, the KL at which the fitted loss reaches the margins, with its 90 % interval."""
    rng = np.random.default_rng(seed)
    everything, recall = np.arange(len(recorded.tasks)), recorded.of_task(RECALL)
    rows = []
    for title, field, chosen in (
        ("accuracy", "correct", everything),
        ("right-choice probability", "probability", everything),
        ("recall: accuracy", "correct", recall),
        ("recall: right-choice probability", "probability", recall),
    ):
        for kind, beginnings in KINDS.items():
            arms = [arm for arm in recorded.damaged if arm.name.startswith(beginnings)]
            if len(arms) > 2:
                fits = [
                    _fit(recorded, arms, field, chosen, rng if draw else None) for draw in range(draws + 1)
                ]
                rows.append([title, kind, f"{len(arms)}", f"{fits[0].power:.2f}", *_crossings(fits)])
    if not rows:
        print("\nA fit needs three arms or more of one kind of damage.")
        return
    header = ["loss", "damage", "arms", "power", *(f"KL at {100 * margin:.0f} points" for margin in MARGINS)]
    table(f"KL at which the fitted loss reaches a margin (90 % interval, {draws:,} draws):", header, rows)


def _fit(
    recorded: Recorded,
    arms: Sequence[Arm],
    field: str,
    chosen: Indices,
    rng: np.random.Generator | None,
) -> Curve:
    """The fit to what was recorded, or to documents and items drawn anew."""
    documents = np.arange(recorded.reference.kl.size)
    if rng is not None:
        documents, chosen = rng.choice(documents, documents.size), rng.choice(chosen, chosen.size)
    before = getattr(recorded.reference, field)[chosen]
    drops = np.array([before - getattr(arm, field)[chosen] for arm in arms])
    chance = np.mean([CHANCE[recorded.tasks[item]] for item in chosen])
    error = np.nanstd(drops, axis=1) / np.sqrt(np.isfinite(drops).sum(axis=1))
    kl = np.array([np.nanmean(arm.kl[documents]) for arm in arms])
    loss = np.nanmean(drops, axis=1)
    return Curve.fitted(kl, loss, np.maximum(error, LEAST_ERROR), ceiling=float(before.mean() - chance))


def _crossings(fits: Sequence[Curve]) -> Iterator[str]:
    for margin in MARGINS:
        drawn = [fit.kl_at(margin) for fit in fits[1:]]
        low, high = np.quantile(drawn, [0.05, 0.95])
        yield f"{fits[0].kl_at(margin):.3f} ({low:.3f} to {high:.3f})"


def companions(recorded: Recorded) -> None:
    """NLL change and top-1 agreement that go with a KL, from straight lines through the logarithms of all arms."""
    kl = np.log([np.nanmean(arm.kl) for arm in recorded.damaged])
    nll = np.array([np.nanmean(arm.nll) for arm in recorded.damaged])
    lost = np.log([1 - np.nanmean(arm.agreement) for arm in recorded.damaged])
    up = nll > 0
    of_nll, of_lost = np.polyfit(kl[up], np.log(nll[up]), 1), np.polyfit(kl, lost, 1)
    rows = [
        [f"{limit:g}", f"{np.exp(np.polyval(of_nll, np.log(limit))):.3f}",
         percent(float(1 - np.exp(np.polyval(of_lost, np.log(limit)))))]
        for limit in (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
    ]  # fmt: skip
    table("What goes with a KL:", ["KL", "NLL change", "top-1 agreement, %"], rows)


# --- power -----------------------------------------------------------------------------------------------------------


def power(recorded: Recorded, *, draws: int, seed: int) -> None:
    """FAIL at one-sided 5 % by exact McNemar and by the paired score, on items drawn with replacement."""
    rng, sizes = np.random.default_rng(seed), (60, 120, 240, 440)
    rows = []
    for arm in recorded.by_damage:
        cells, measured = [], np.flatnonzero(np.isfinite(arm.correct))
        for n in sizes:
            found = np.array([_found(recorded.reference, arm, rng.choice(measured, n)) for _ in range(draws)])
            cells.append(" / ".join(percent(share) for share in found.mean(axis=0)))
        rows.append([arm.name, *cells])
    header = ["damage", *(f"{n} items" for n in sizes)]
    table(f"Found by McNemar / by the paired score, % of {draws:,} draws:", header, rows)


def _found(reference: Arm, arm: Arm, chosen: Indices) -> tuple[bool, bool]:
    before, after = reference.correct[chosen] > 0, arm.correct[chosen] > 0
    p = mcnemar_exact(lost=int((before & ~after).sum()), gained=int((~before & after).sum()))
    change = (arm.probability - reference.probability)[chosen]
    return p <= 1 - CONFIDENCE, mean_less_p(change, np.arange(chosen.size), threshold=0.0) <= 1 - CONFIDENCE


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recordings", type=Path, default=FOLDER)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    recorded = Recorded.read(options.recordings)
    damages(recorded)
    companions(recorded)
    relation(recorded, draws=options.draws, seed=options.seed)
    power(recorded, draws=options.draws, seed=options.seed)


if __name__ == "__main__":
    main()
