"""Several facts hidden in prose, all but one asked for after it."""

from __future__ import annotations

from typing import Final

from workers.suites.context.draft import Draft, in_turn
from workers.suites.context.haystack import haystack, hidden
from workers.suites.context.words import PLACES, code
from workers.suites.dice import Dice

NEEDLES: Final = 4


def multi_needle(dice: Dice, size: int, depth: float) -> Draft:
    """The numbers of four places, the first at `depth`, each a quarter of the text further on, wrapping around.

    The last one is repeated by the prompt, which shows what is wanted; the others are asked for one by one.
    """
    facts = [
        (f"The secret number of the {place} is", code(dice, 4)) for place in dice.shuffled(PLACES)[:NEEDLES]
    ]
    told = [
        ((depth + index / NEEDLES) % 1, f"{stem} {number}.") for index, (stem, number) in enumerate(facts)
    ]
    *asked, (shown, its_number) = facts
    return in_turn(
        f"{hidden(haystack(dice, size), told)}\n\nThe secret numbers once more:\n{shown} {its_number}",
        [(f".\n{stem}", f" {number}") for stem, number in asked],
    )
