"""A long list of words, of which the most frequent one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from workers.suites.context.draft import Draft, in_turn
from workers.suites.context.words import THINGS
from workers.suites.dice import Dice

CANDIDATES: Final = 12
SHOWN: Final = 3


def frequent(dice: Dice, size: int, depth: float) -> Draft:
    """A list of `size` times three words, one word being two of each three, after three short lists with answers.

    Guessing among the twelve words of the list is right once in twelve. Nothing stands at `depth`.
    """
    del depth
    shown = [_shown(dice) for _ in range(SHOWN)]
    often, *others = dice.shuffled(THINGS)[:CANDIDATES]
    words = [word for _ in range(size) for word in dice.shuffled([often, often, dice.choose(others)])]
    return in_turn("".join(shown), [(_question(words), f" {often}")])


def _shown(dice: Dice) -> str:
    often, second, third = dice.shuffled(THINGS)[:3]
    return f"{_question(dice.shuffled([often] * 5 + [second, third]))} {often}\n\n"


def _question(words: Sequence[str]) -> str:
    return f"List: {', '.join(words)}\nMost frequent:"
