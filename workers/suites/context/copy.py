"""A long list to be copied exactly; a stretch of the copy is scored."""

from __future__ import annotations

from typing import Final

from workers.suites.context.draft import Draft, in_turn
from workers.suites.context.words import code
from workers.suites.dice import Dice

ASKED: Final = 8


def copy(dice: Dice, size: int, depth: float) -> Draft:
    """A numbered list of three-digit numbers, eight longer than `size`; the copy is given up to `depth`."""
    entries = [code(dice, 3) for _ in range(size + ASKED)]
    lines = [f"\n{number}. {entry}" for number, entry in enumerate(entries, start=1)]
    start = int(depth * size)
    return in_turn(
        f"List:{''.join(lines)}\n\nThe same list again:{''.join(lines[:start])}",
        [(f"\n{index + 1}.", f" {entries[index]}") for index in range(start, start + ASKED)],
    )
