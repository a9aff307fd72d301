"""Sentences to hide facts among: the prose of the bundled texts, in reading order from a drawn place on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from workers.suites.dice import Dice
from workers.suites.documents import bundled_texts

SHORTEST_PARAGRAPH: Final = 160
SHORTEST_SENTENCE: Final = 20
"""In characters. Shorter lines are headings, tables, verse, code; shorter sentences are numbering and cries."""

_SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[A-Z])")


@lru_cache
def sentences() -> tuple[str, ...]:
    """Every sentence of every paragraph of prose, some 16,000 tokens."""
    paragraphs = (line.strip() for _, text in bundled_texts() for line in text.splitlines())
    prose = (paragraph for paragraph in paragraphs if len(paragraph) >= SHORTEST_PARAGRAPH)
    found = (sentence for paragraph in prose for sentence in _SENTENCE_END.split(paragraph))
    return tuple(sentence for sentence in found if len(sentence) >= SHORTEST_SENTENCE)


def haystack(dice: Dice, size: int) -> list[str]:
    """`size` sentences in reading order, from a drawn one on; they start over where the texts end."""
    known = sentences()
    start = dice.below(len(known))
    return [known[(start + offset) % len(known)] for offset in range(size)]


def hidden(sentences_around: Sequence[str], facts: Sequence[tuple[float, str]]) -> str:
    """The sentences with each fact put in at its depth, as one text."""
    around = len(sentences_around)
    placed = [(index + 0.5, sentence) for index, sentence in enumerate(sentences_around)]
    placed += [(float(round(depth * around)), fact) for depth, fact in facts]
    return " ".join(text for _, text in sorted(placed, key=lambda entry: entry[0]))
