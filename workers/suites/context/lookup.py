"""A long table of keys and values, one of which is asked for."""

from __future__ import annotations

from typing import Final

from workers.suites.context.draft import Draft, in_turn
from workers.suites.context.words import NAMES, THINGS, code
from workers.suites.dice import Dice

SHOWN: Final = 3


def lookup(dice: Dice, size: int, depth: float) -> Draft:
    """A table of `size` lines `key: value` and three more; those asked for stands at `depth`.

    The prompt repeats three others, which shows what is wanted.
    """
    table = [(key, code(dice, 4)) for key in _keys(dice, size + SHOWN)]
    key, value = table.pop(asked := int(depth * size))
    shown = [table[0], table[len(table) // 2], table[-1]]
    lines = [f"{known}: {number}" for known, number in table]
    lines.insert(asked, f"{key}: {value}")
    again = "".join(f"{known}: {number}\n" for known, number in shown)
    return in_turn("\n".join(lines) + f"\n\nSome of these again:\n{again}", [(f"{key}:", f" {value}")])


def _keys(dice: Dice, count: int) -> list[str]:
    """So many keys, no two alike before all combinations are used."""
    pairs = dice.shuffled([f"{name}'s {thing}" for name in NAMES for thing in THINGS])
    return [pairs[index % len(pairs)] for index in range(count)]
