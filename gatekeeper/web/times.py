"""Moments and durations as a page shows them. The present is always an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

MINUTE, HOUR, DAY = 60, 3600, 86_400


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A point in time: for machines, in full, and how long ago or ahead."""

    iso: str
    full: str
    ago: str


def moment(at: datetime, *, now: datetime) -> Moment:
    """Describe `at` as seen at `now`."""
    at = at.astimezone(UTC)
    full = f"{at:%d %b %Y, %H:%M:%S} UTC".lstrip("0")
    return Moment(iso=at.isoformat(timespec="seconds"), full=full, ago=ago(at, now=now))


def deadline(at: datetime, *, now: datetime) -> Moment:
    """The same of a point that may be still to come."""
    shown = moment(at, now=now)
    left = int((at - now).total_seconds())
    return replace(shown, ago=f"in {_one_unit(left)}") if left > 0 else shown


def ago(at: datetime, *, now: datetime) -> str:
    """How long ago, in one unit; a date once it is more than a month. Clocks that differ a little make it now."""
    seconds = int((now - at).total_seconds())
    if seconds < 5:
        return "now"
    return f"{_one_unit(seconds)} ago" if seconds < 31 * DAY else f"{at.astimezone(UTC):%d %b %Y}".lstrip("0")


def _one_unit(seconds: int) -> str:
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    return f"{seconds // HOUR} h" if seconds < DAY else f"{seconds // DAY} d"


def duration(span: timedelta) -> str:
    """A length of time: `0.4 s`, `38 s`, `2 min 05 s`, `1 h 02 min`."""
    seconds = max(span.total_seconds(), 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} min"
