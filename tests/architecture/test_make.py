"""What `make test` runs in parts is everything, and nothing twice."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PART = re.compile(r'^(test-\w+):.*\n\t@\$\(PYTEST\) -m "?([^"\n]+)', re.MULTILINE)
ALL_PARTS = re.compile(r"--keep-going ((?:test-\w+ ?)+)")


def test_every_test_that_is_not_long_is_in_one_part_of_make_test() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    chosen, named = dict(PART.findall(makefile)), ALL_PARTS.search(makefile)
    assert named is not None
    parts = [chosen[name] for name in named[1].split()]
    for engine, long, browser in product((True, False), repeat=3):
        marks = {"engine": engine, "long": long, "browser": browser}
        assert sum(eval(part, {}, marks) for part in parts) == (not long), (
            marks
        )  # a selection reads as Python
