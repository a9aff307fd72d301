"""One fact hidden in prose, asked for after it."""

from __future__ import annotations

from workers.suites.context.draft import Draft, in_turn
from workers.suites.context.haystack import haystack, hidden
from workers.suites.context.words import PLACES, code
from workers.suites.dice import Dice


def needle(dice: Dice, size: int, depth: float) -> Draft:
    """The number of one place, stated at `depth`."""
    place, number = dice.choose(PLACES), code(dice, 5)
    fact = f"The secret number of the {place} is {number}."
    question = (
        f"Question: What is the secret number of the {place}?\nAnswer: The secret number of the {place} is"
    )
    return in_turn(hidden(haystack(dice, size), [(depth, fact)]), [(f"\n\n{question}", f" {number}")])
