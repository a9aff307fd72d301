"""Files that are none, and readers that must not wait for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.calibrations import list_calibrations
from gatekeeper.domain.errors import UnreadableInput
from gatekeeper.files import read_text

ODD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("/nowhere"),
    "a link to itself": lambda path: path.symlink_to(path),
    "bytes that are no text": lambda path: path.write_bytes(b"\xff"),
    "more than is allowed": lambda path: path.write_bytes(b"x" * 101),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_what_is_no_file_of_text_is_refused_by_its_name_without_waiting(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "odd.txt"
    make(path)
    with pytest.raises(UnreadableInput, match=str(path)):
        read_text(path, limit_bytes=100)


def test_a_link_to_a_file_is_read_and_the_mark_of_its_encoding_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbftext")
    (tmp_path / "b").symlink_to("a")
    assert read_text(tmp_path / "b", limit_bytes=100) == "text"


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_what_is_no_calibration_is_passed_over_without_waiting(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    (tmp_path / "calibrations").mkdir()
    make(tmp_path / "calibrations" / "odd.safetensors")
    deep = tmp_path / "calibrations" / "deep.safetensors"
    deep.write_bytes((200_000).to_bytes(8, "little") + b"[" * 200_000)
    assert list_calibrations(tmp_path) == ()
