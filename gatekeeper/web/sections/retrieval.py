"""What was found again, by where it stood in the context and how long that was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gatekeeper.services.items import ItemView
from gatekeeper.web.figures import MINUS

METRIC: Final = "retrieved"
ALL_FAMILIES: Final = "all families"
DEPTHS: Final = 5
SHADES: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatCell:
    """Items of one depth and length: how many the candidate found of how many, against the baseline.

    `shade`: 0 (none found) to SHADES (all), None where nothing was asked.
    """

    text: str
    change: str
    words: str
    shade: int | None
    is_worse: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatRow:
    """The items whose answer stood at one depth of the context."""

    depth: str
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatMap:
    """One family, or all together. The last row is over all depths."""

    family: str
    lengths: tuple[str, ...]
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    family: str
    length: int
    depth: float
    before: float
    after: float


def heat_maps(items: Sequence[ItemView]) -> tuple[HeatMap, ...]:
    """All families together, then each; empty where no retrieval was measured in both arms."""
    asked = [found for item in items if item.metric == METRIC and (found := _asked(item))]
    families = sorted({item.family for item in asked})
    if not asked:
        return ()
    alone = [_map(family, [item for item in asked if item.family == family]) for family in families]
    return (_map(ALL_FAMILIES, asked), *(alone if len(families) > 1 else ()))


def _asked(item: ItemView) -> _Asked | None:
    """Item ids read `family/length/depth/number`; others have no place on the map."""
    parts = item.item_id.split("/")
    if len(parts) != 4 or item.baseline is None or item.candidate is None:
        return None
    try:
        return _Asked(parts[0], int(parts[1]), float(parts[2]), item.baseline, item.candidate)
    except ValueError:
        return None


def _map(family: str, asked: Sequence[_Asked]) -> HeatMap:
    lengths = sorted({item.length for item in asked})
    by_depth: dict[int, list[_Asked]] = defaultdict(list)
    for item in asked:
        by_depth[min(int(item.depth * DEPTHS), DEPTHS - 1)].append(item)
    step = 100 // DEPTHS
    rows = [
        _row(f"{place * step} to {(place + 1) * step}%", by_depth[place], lengths)
        for place in sorted(by_depth)
    ]
    return HeatMap(
        family=family,
        lengths=tuple(f"{length:,}" for length in lengths),
        rows=(*rows, _row("all depths", asked, lengths)),
    )


def _row(depth: str, items: Iterable[_Asked], lengths: Sequence[int]) -> HeatRow:
    by_length: dict[int, list[_Asked]] = defaultdict(list)
    for item in items:
        by_length[item.length].append(item)
    return HeatRow(depth=depth, cells=tuple(_cell(by_length[length]) for length in lengths))


def _cell(items: Sequence[_Asked]) -> HeatCell:
    if not items:
        return HeatCell(text="", change="", words="not asked", shade=None, is_worse=False)
    before, after = (sum(value > 0 for value in values) for values in zip(*map(_pair, items), strict=True))
    n, gap = len(items), after - before
    return HeatCell(
        text=f"{after}/{n}",
        change=f"{gap:+d}".replace("-", MINUS) if gap else "",
        words=f"candidate {after} of {n}, baseline {before}",
        shade=round(SHADES * after / n),
        is_worse=gap < 0,
    )


def _pair(item: _Asked) -> tuple[float, float]:
    return item.before, item.after
