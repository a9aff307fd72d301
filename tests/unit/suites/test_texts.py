"""The bundled reference documents: shape, encoding and mutual independence, without a tokenizer."""

from itertools import combinations
from pathlib import Path

import pytest

TEXTS_DIR = Path(__file__).resolve().parents[3] / "workers" / "suites" / "texts"
PATHS = sorted(TEXTS_DIR.glob("*.txt"))
DOCUMENT_COUNT = 32
# 720 to 1100 tokens each; prose takes about 4 characters a token, tables and logs about 2.
MIN_CHARS, MAX_CHARS = 1900, 4600
SHARED_CHARS = 60


def _read(path: Path) -> str:
    """Decode strictly and without newline translation, so that a stray CR is seen."""
    return path.read_bytes().decode("utf-8", errors="strict")


def _windows(text: str) -> frozenset[str]:
    """Every substring of SHARED_CHARS characters."""
    return frozenset(text[i : i + SHARED_CHARS] for i in range(len(text) - SHARED_CHARS + 1))


def test_there_are_32_documents_numbered_without_gaps() -> None:
    numbers = [path.name.partition("_")[0] for path in PATHS]
    assert numbers == [f"{n:02d}" for n in range(1, DOCUMENT_COUNT + 1)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_document_is_long_enough_to_score_and_short_enough_for_a_small_context(path: Path) -> None:
    assert MIN_CHARS <= len(_read(path)) <= MAX_CHARS


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_document_is_utf8_with_plain_newlines_and_no_control_characters(path: Path) -> None:
    text = _read(path)
    assert not text.startswith("\ufeff")
    assert [c for c in text if c != "\n" and not c.isprintable()] == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_document_has_no_trailing_whitespace_and_ends_with_one_newline(path: Path) -> None:
    text = _read(path)
    assert text.endswith("\n")
    assert [line for line in text[:-1].split("\n") if line != line.rstrip()] == []
    assert text == text.strip() + "\n"


def test_no_two_documents_share_a_long_substring() -> None:
    windows = {path.name: _windows(_read(path)) for path in PATHS}
    shared = {(a, b): windows[a] & windows[b] for a, b in combinations(windows, 2)}
    assert {pair: sorted(common)[:1] for pair, common in shared.items() if common} == {}
