"""Seeded draws that give the same on every Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Draws made from `random()` alone: Python promises its sequence across versions, no other."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)

    def below(self, end: int) -> int:
        """A number from 0 to end - 1."""
        return int(self._rng.random() * end)

    def choose(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """All options in another order."""
        return sorted(options, key=lambda _: self._rng.random())
