"""Variables assigned to each other: following one to its end takes several hops."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from workers.suites.context.draft import Draft, in_turn
from workers.suites.context.haystack import haystack, hidden
from workers.suites.context.words import codes
from workers.suites.dice import Dice

HOPS: Final = 3


def multi_hop(dice: Dice, size: int, depth: float) -> Draft:
    """Two chains of assignments, their links spread over the text from `depth` on.

    The prompt repeats one chain, which shows what is wanted; the other is followed link by link from its start.
    """
    names = codes(dice, 4, 2 * (HOPS + 1))
    shown, asked = (
        [(f"Variable {name} is set to variable", target) for name, target in pairwise(chain)]
        for chain in (names[: HOPS + 1], names[HOPS + 1 :])
    )
    told = [
        (depth + (1 - depth) * hop / HOPS, f"{stem} {target}.")
        for chain in (shown, asked)
        for hop, (stem, target) in enumerate(chain)
    ]
    repeated = ".\n".join(f"{stem} {target}" for stem, target in shown)
    return in_turn(
        f"{hidden(haystack(dice, size), told)}\n\nOnce more:\n{repeated}",
        [(f".\n{stem}", f" {target}") for stem, target in asked],
    )
