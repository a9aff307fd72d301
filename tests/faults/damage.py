"""What a damaged cache does to a distribution, as far as a served answer shows one. Pure functions.

Damage is noise on the logits: each token's is moved by a normal deviate of `strength`, the same whenever the same
prompt meets the same place. The probability of the tokens that the answer does not list is moved by the noise's mean,
so that what is listed stays a part of one distribution.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

Row = Mapping[str, float]
"""Token, as the answer spells it -> log-probability: the tokens that an answer lists at one place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A token of an answer: `context` tokens came before it; it is decoded token `decoded`, None within the prompt."""

    context: int
    decoded: int | None


def noised(row: Row, *, strength: float, seed: str) -> dict[str, float]:
    """The row under damaged logits, best first."""
    moved = {token: value + strength * _deviate(f"{seed}/{token}") for token, value in row.items()}
    unlisted = max(1.0 - sum(math.exp(value) for value in row.values()), 0.0)
    mean = math.exp(strength**2 / 2)  # of exp(strength * z), z standard normal
    total = math.log(sum(math.exp(value) for value in moved.values()) + unlisted * mean)
    best_first = sorted(moved, key=lambda token: -moved[token])
    return {token: moved[token] - total for token in best_first}


def _deviate(seed: str) -> float:
    """A standard normal deviate that depends on the seed alone."""
    return random.Random(seed).gauss(0.0, 1.0)
