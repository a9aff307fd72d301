"""Whether a freely generated text is sound: not stuck in a loop, without a stammer, in the asked format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

LONGEST_PERIOD: Final = 64
"""Tokens; a loop of longer pieces is a refrain."""
FEWEST_REPEATS: Final = 4
"""So many copies in a row, at the least, and `SHORTEST_LOOP` tokens of them, make a loop."""
SHORTEST_LOOP: Final = 48
NGRAM: Final = 4
MOST_STUTTER: Final = 0.1
"""Words, or tokens, that repeat the one before, as a share of all; sound prose has hardly any."""


def loop_tokens(tokens: Sequence[int]) -> int:
    """Tokens of the longest stretch, anywhere, that repeats one piece of at most `LONGEST_PERIOD` tokens; 0: none.

    A stretch of period p is a run in which every token equals the one p places before it.
    """
    longest = 0
    for period in range(1, min(LONGEST_PERIOD, len(tokens) - 1) + 1):
        run = 0
        for here in range(period, len(tokens)):
            run = run + 1 if tokens[here] == tokens[here - period] else 0
            if run >= period * (FEWEST_REPEATS - 1) and run + period >= SHORTEST_LOOP:
                longest = max(longest, run + period)
    return longest


def stutter_share(pieces: Sequence[object]) -> float:
    """Words or tokens that are the same as the one before, as a share of all: 0 in most prose, near 1 in a stammer."""
    return sum(one == other for one, other in pairwise(pieces)) / len(pieces) if pieces else 0.0


def is_sound(tokens: Sequence[int], pieces: Sequence[object]) -> bool:
    """Whether a text that consists of these tokens says something, without a loop and without a stammer.

    `pieces`: its words, or the tokens themselves, of which hardly any may repeat the one before.
    """
    return len(pieces) > 0 and loop_tokens(tokens) == 0 and stutter_share(pieces) < MOST_STUTTER


def distinct_share(tokens: Sequence[int]) -> float:
    """Distinct n-grams as a share of all of them (n = 4): 1 without repetition, near 0 in a loop (Li et al. 2016)."""
    grams = [tuple(tokens[i : i + NGRAM]) for i in range(len(tokens) - NGRAM + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def valid_records(text: str, keys: Sequence[str], *, count: int) -> int:
    """How many of the first `count` lines are JSON objects with exactly these keys, up to the first that is not."""
    for number, line in enumerate(text.strip().splitlines()[:count]):
        if not _is_record(line, keys):
            return number
    return min(count, len(text.strip().splitlines()))


def _is_record(line: str, keys: Sequence[str]) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and list(record) == list(keys)
