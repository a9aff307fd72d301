"""The texts that a model is calibrated on."""

import json
import os
from pathlib import Path

import pytest

from gatekeeper.domain.errors import UnreadableInput
from workers.calibrate import CONTEXT_TOKENS, MOST_TOKENS, cut, read_texts
from workers.suites.documents import bundled_texts


def test_the_bundled_texts_are_none_that_suites_measure_on() -> None:
    own = read_texts(None)
    assert len(own) == 8
    measured = {line for _, text in bundled_texts() for line in text.splitlines() if len(line) > 40}
    assert [line for text in own for line in text.splitlines() if line in measured] == []


def test_a_file_or_a_folder_of_texts_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in ("first", "one more")))
    (tmp_path / "c.csv").write_text("not a text")
    assert read_texts(tmp_path) == ["first", "one more", "second"]
    assert read_texts(tmp_path / "b.txt") == ["second"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl", '{"text": "x"}\n{"body": "y"}', "line 2"),
        ("a.jsonl", "{", "line 1"),
        ("a.jsonl", '{"text": 5}', "not a string"),
        ("a.txt", "\udcff", "UTF-8"),
        ("a.csv", "x", "has none"),
    ],
)
def test_what_holds_no_texts_is_refused(tmp_path: Path, name: str, content: str, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UnreadableInput, match=reason):
        read_texts(path)


@pytest.mark.parametrize("name", ["texts", "texts/a.txt", "texts/a.jsonl"])
def test_a_pipe_among_the_texts_is_refused_without_waiting(tmp_path: Path, name: str) -> None:
    (tmp_path / "texts").mkdir()
    pipe = tmp_path / (name if "." in name else f"{name}/a.txt")
    os.mkfifo(pipe)
    with pytest.raises(UnreadableInput, match=f"{pipe} is not a file"):
        read_texts(tmp_path / name)


def test_a_line_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("[" * 100_000)
    with pytest.raises(UnreadableInput, match="line 1"):
        read_texts(path)


def test_texts_are_cut_into_pieces_up_to_what_is_used() -> None:
    pieces = cut([range(CONTEXT_TOKENS + 100), range(CONTEXT_TOKENS + 10), range(10 * MOST_TOKENS)])
    assert [len(piece) for piece in pieces[:3]] == [CONTEXT_TOKENS, 100, CONTEXT_TOKENS]
    assert pieces[3][0] == 0  # what is too short for a piece is left out
    assert sum(map(len, pieces)) == MOST_TOKENS


def test_too_few_tokens_are_refused() -> None:
    with pytest.raises(UnreadableInput, match="at least 1024"):
        cut([range(700), range(20)])
