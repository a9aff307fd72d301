"""Token texts from a tokenizer's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.services.vocabulary import token_texts


def write(folder: Path, **document: Any) -> str:
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    return str(folder)


def test_a_byte_level_vocabulary_is_read_back_into_text(tmp_path: Path) -> None:
    vocabulary = {"hello": 5, "\u0120world": 6, "\u010a": 7, "\u00c3\u00a9": 8, "\u00c3": 9}
    added = [{"id": 0, "content": "<|end|>"}]
    source = write(tmp_path, model={"vocab": vocabulary}, decoder={"type": "ByteLevel"}, added_tokens=added)
    assert token_texts(source) == {
        0: "<|end|>", 5: "hello", 6: " world", 7: "\n", 8: "\u00e9", 9: "\ufffd",
    }  # fmt: skip


def test_a_sentencepiece_vocabulary_too(tmp_path: Path) -> None:
    vocabulary = [["\u2581the", -1.0], ["<0x0A>", -2.0]]
    source = write(tmp_path, model={"vocab": vocabulary}, decoder={"type": "Sequence"})
    assert token_texts(source) == {0: " the", 1: "\n"}


@pytest.mark.parametrize("text", ["", "[]", '{"model": {}}', '{"model": {"vocab": {"a": "b"}}}'])
def test_a_file_that_says_nothing_gives_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    assert token_texts(str(tmp_path)) == {}


def test_neither_does_a_hub_id() -> None:
    assert token_texts("HuggingFaceTB/SmolLM2-135M") == {}
