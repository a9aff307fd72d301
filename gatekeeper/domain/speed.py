"""Rounds of the serving benchmark: how they are named, and how those of two engines that took turns are paired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from gatekeeper.domain.measurement import Measurement, Mode
from gatekeeper.domain.policy import ALL, load_group
from gatekeeper.domain.verdict import Verdict
from gatekeeper.stats.binary import mcnemar_exact

SUITE: Final = "performance"
COMPANION: Final = "companion"
"""The suite of the rounds of an arm's companion: the baseline's configuration, launched to take turns with it."""

FAILED: Final = "failed_requests"

LoadKey: TypeAlias = tuple[Mode, str]
"""Mode and group: what a figure of speed speaks of."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Round:
    """Which round of which launch. Launches count from 1, 0 is an arm's own launch; rounds from 1."""

    launch: int
    number: int

    def item_id(self, input_tokens: int) -> str:
        """The item of this round's requests with prompts of that length."""
        launch = f"launch-{self.launch}/" if self.launch else ""
        return f"{launch}round-{self.number}/{input_tokens}"


def round_of(item_id: str) -> tuple[Round, int | None]:
    """The round and the length of prompts of an item; None: stored before rounds had several lengths."""
    named = dict(part.split("-", 1) for part in item_id.split("/") if "-" in part)
    length = item_id.rpartition("/")[2]
    which = Round(launch=int(named.get("launch", 0)), number=int(named["round"]))
    return which, int(length) if length.isdigit() else None


def rounds_of(
    measurements: Sequence[Measurement], metric: str, *, suite: str = SUITE
) -> dict[LoadKey, dict[Round, float]]:
    """By mode and group, the positive figures of a metric by round.

    All loads of a mode together are the geometric mean over lengths, of rounds that have them all: then each length
    has the same say in a ratio. Where there are several lengths, each is a group too.
    """
    by_length: dict[Mode, dict[int | None, dict[Round, float]]] = defaultdict(lambda: defaultdict(dict))
    for m in measurements:
        if (m.suite, m.metric) == (suite, metric) and m.value is not None and m.value > 0:
            which, length = round_of(m.item_id)
            by_length[m.mode][length][which] = m.value
    found: dict[LoadKey, dict[Round, float]] = {}
    for mode, lengths in by_length.items():
        shared = set.intersection(*(set(rounds) for rounds in lengths.values()))
        found[mode, ALL] = {
            which: float(np.exp(np.mean([np.log(rounds[which]) for rounds in lengths.values()])))
            for which in sorted(shared)
        }
        if len(lengths) > 1:
            for length, rounds in lengths.items():
                assert length is not None  # rounds without a length are stored alone
                found[mode, load_group(length)] = dict(sorted(rounds.items()))
    return found


def took_turns(measurements: Sequence[Measurement]) -> bool:
    """True for an arm whose speed was measured in turns with a companion."""
    return any(m.suite == COMPANION for m in measurements)


def paired(
    companion: Mapping[Round, float], own: Mapping[Round, float]
) -> dict[int, list[tuple[float, float]]]:
    """By launch, (companion's figure, own figure) of every round that is valid in both, in order."""
    pairs: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for which in sorted(companion.keys() & own.keys()):
        pairs[which.launch].append((companion[which], own[which]))
    return dict(pairs)


def failed_requests(
    baseline: Sequence[Measurement], candidate: Sequence[Measurement], *, alpha: float
) -> tuple[Verdict, str] | None:
    """What requests that came to nothing under load mean; None where the candidate has none.

    Both arms were sent the same requests. Under "no worse than the baseline" a failure is as likely to be the one's as
    the other's (exact sign test, as McNemar's). However few, they rule a PASS out: nothing else measured them.
    """
    companion = COMPANION if took_turns(candidate) else SUITE
    failed = _failures(candidate, SUITE)
    reference = _failures(candidate if companion == COMPANION else baseline, companion)
    if not failed:
        return None
    words = f"{failed} requests failed under load, {reference or 'none'} of the baseline's"
    if mcnemar_exact(lost=failed, gained=reference) <= alpha:
        return Verdict.FAIL, words
    return Verdict.INVALID, f"{words}: too few to blame the candidate, too many to pass it"


def _failures(measurements: Sequence[Measurement], suite: str) -> int:
    return sum(int(m.value or 0) for m in measurements if (m.suite, m.metric) == (suite, FAILED))
