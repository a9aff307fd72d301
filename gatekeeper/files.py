"""Files that people and other programs hand in, opened so that nothing strange in their place holds up the reader."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from gatekeeper.domain.errors import UnreadableInput


def open_file(path: Path) -> BinaryIO:
    """Open a regular file, or a link to one. Raises UnreadableInput for anything else, naming it."""
    try:
        # Opened without blocking, so that a pipe nobody writes to is refused like any other oddity.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableInput(f"{path} is not a file")
    return open(descriptor, "rb")  # noqa: PTH123 - a descriptor, not a path


def read_text(path: Path, *, limit_bytes: int) -> str:
    """Read a text file of at most `limit_bytes`. Raises UnreadableInput for anything else, naming it."""
    with open_file(path) as file:
        try:
            content = file.read(limit_bytes + 1)
        except OSError as error:
            raise UnreadableInput(f"{path}: {error.strerror}") from error
    if len(content) > limit_bytes:
        raise UnreadableInput(f"{path} is larger than {limit_bytes:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"{path} is not UTF-8 text") from error
