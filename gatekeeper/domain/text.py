"""Text from anywhere, made such that it can be printed, sent and stored."""

from __future__ import annotations


def storable(text: str) -> str:
    """Return `text` with what PostgreSQL cannot hold (NUL, lone surrogates) replaced by U+FFFD and `?`."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
