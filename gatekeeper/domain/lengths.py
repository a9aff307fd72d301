"""Lengths that a probe takes: one, or several different ones."""

from __future__ import annotations


def lengths_of(given: int | tuple[int, ...]) -> tuple[int, ...]:
    """One length or several, as several."""
    return (given,) if isinstance(given, int) else given


def check_distinct(field: str, lengths: tuple[int, ...]) -> None:
    """Raises ValueError naming the field."""
    if len(set(lengths)) < len(lengths):
        raise ValueError(f"{field}: a length is there twice: {', '.join(map(str, lengths))}")
