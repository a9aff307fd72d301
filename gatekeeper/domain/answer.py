"""What an arm said to one item, kept for people to read; no verdict looks at it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeAlias

from gatekeeper.domain.measurement import Mode

MOST_PROMPT: Final = 2_000
MOST_TEXT: Final = 8_000
"""Characters that are kept of a prompt, and of an expected or given answer; of a longer one, its two ends."""
MOST_PLACES: Final = 64
MOST_CHANCES: Final = 5
"""Tokens of an answer whose distribution is kept, and the most probable ones kept of each."""

Chances: TypeAlias = tuple[tuple[str, float], ...]
"""Texts with their probabilities, the most probable first."""
_WORD: Final = re.compile(r"\s*\S+|\s+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One arm's answer to one item.

    `expected` None: nothing is right or wrong word by word, as in free decoding. `options`: of a multiple-choice item.
    `places`: at each token of the expected answer, given those before it, what the arm held for the next one; `text`
    is then its first choice at each.
    """

    suite: str
    mode: Mode
    item_id: str
    prompt: str
    expected: str | None
    text: str
    options: Chances = ()
    places: tuple[Chances, ...] = ()

    @property
    def pieces(self) -> list[str]:
        """The text in tokens where they are known, else in words."""
        return [chances[0][0] for chances in self.places] or _WORD.findall(self.text)


def excerpt(text: str, most: int) -> str:
    """The text, or its two ends and how much is missing between them."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} [{len(text) - 2 * half:,} characters left out] {text[-half:]}"


def first_difference(baseline: Answer, candidate: Answer) -> int | None:
    """The first piece, counted from 0, at which two answers differ; None where they are equal."""
    pairs = zip_longest(baseline.pieces, candidate.pieces)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), None)
