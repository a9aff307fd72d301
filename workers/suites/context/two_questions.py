"""Two questions over one context: the second one comes after the first was answered."""

from __future__ import annotations

from workers.suites.context.draft import Draft, in_turn
from workers.suites.context.haystack import haystack, hidden
from workers.suites.context.words import CITIES, NAMES, THINGS
from workers.suites.dice import Dice


def two_questions(dice: Dice, size: int, depth: float) -> Draft:
    """Two unrelated facts, the one asked last at `depth`, the other half of the text away.

    The prompt ends with the first question, so whatever shortens the cache by what the prompt asks for, as SnapKV and
    its kin do, has no reason to keep the second fact; the second question is part of the decode.
    """
    first, second = dice.shuffled(NAMES)[:2]
    city, thing = dice.choose(CITIES), dice.choose(THINGS)
    facts = [((depth + 0.5) % 1, f"{first} lives in {city}."), (depth, f"{second} has lost a {thing}.")]
    return in_turn(
        hidden(haystack(dice, size), facts),
        [
            (f"\n\nQuestion: Where does {first} live?\nAnswer: {first} lives in", f" {city}"),
            (f".\n\nQuestion: What has {second} lost?\nAnswer: {second} has lost a", f" {thing}"),
        ],
    )
