"""Figures of one stretch of an item's decode, stored beside the figure of the whole item under a name of their own."""

from __future__ import annotations

from gatekeeper.domain.policy import positions_group


def figure_in_stretch(figure: str, start: int, end: int) -> str:
    """The name of a figure for decoded tokens `start` to `end` - 1 alone, such as `sound, tokens 256-512`."""
    return f"{figure}, {positions_group(start, end)}"


def stretch_of(name: str, figure: str) -> str | None:
    """The group that the name of such a figure speaks of; None if it is no stretch of this figure."""
    whole, comma, group = name.partition(", ")
    return group if comma and whole == figure else None
