"""Ids as text: what is no id is the id of nothing."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from gatekeeper.domain.errors import NotFound

MOST_DIGITS: Final = 18
"""Fits the 64 bits of the database."""


def run_id_of(text: str) -> UUID:
    """A run's id. Raises NotFound."""
    try:
        return UUID(text)
    except ValueError as error:
        raise NotFound(f"run {text!r}") from error


def row_id_of(text: str, kind: str) -> int:
    """The number of a baseline, a waiver, a webhook. Raises NotFound."""
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise NotFound(f"{kind} {text!r}")
    return int(text)
