"""How long requests took in either arm, round by round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gatekeeper.domain.speed import COMPANION, SUITE, round_of
from gatekeeper.services.items import ItemView
from gatekeeper.web import figures, plots
from gatekeeper.web.plots import Lane, Strip

LATENCIES: Final = {"ttft": "Time to first token", "itl": "Between tokens", "e2e": "End to end"}
PERCENTILES: Final = (50, 90, 99)
METRICS: Final = tuple(f"{name}_p{percentile}_ms" for name in LATENCIES for percentile in PERCENTILES)
Load = tuple[str, int | None]
"""Cache state and length of the prompts; None where rounds have only one length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyRow:
    """One percentile: the median over rounds in either arm, and the least and largest."""

    percentile: str
    baseline: str
    baseline_span: str
    candidate: str
    candidate_span: str
    ratio: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyPanel:
    """One latency under one load, drawn and as a table."""

    title: str
    load: str
    strip: Strip
    rows: tuple[LatencyRow, ...]


def latency_panels(items: Sequence[ItemView]) -> tuple[LatencyPanel, ...]:
    """A panel per latency and load that both arms have rounds of."""
    before, after = _rounds(items)
    panels = []
    for load in sorted({key[0] for key in before.keys() & after.keys()}, key=str):
        for name, title in LATENCIES.items():
            keys = [(load, f"{name}_p{percentile}_ms") for percentile in PERCENTILES]
            known = [key for key in keys if key in before and key in after]
            if known:
                panels.append(_panel(title, load, {key[1]: (before[key], after[key]) for key in known}))
    return tuple(panels)


Rounds = Mapping[tuple[Load, str], list[float]]


def _rounds(items: Sequence[ItemView]) -> tuple[Rounds, Rounds]:
    """Baseline's and candidate's. Where engines took turns, the companion's rounds are the baseline's."""
    before: dict[tuple[Load, str], list[float]] = defaultdict(list)
    after: dict[tuple[Load, str], list[float]] = defaultdict(list)
    in_turns = any(item.suite == COMPANION for item in items)
    for item in items:
        if item.metric not in METRICS:
            continue
        key = (item.mode, round_of(item.item_id)[1]), item.metric
        if item.suite == SUITE:
            _add(after[key], item.candidate)
        if item.suite == (COMPANION if in_turns else SUITE):
            _add(before[key], item.candidate if in_turns else item.baseline)
    return _present(before), _present(after)


def _present(rounds: Rounds) -> Rounds:
    return {key: values for key, values in rounds.items() if values}


def _add(values: list[float], value: float | None) -> None:
    if value is not None:
        values.append(value)


def _panel(title: str, load: Load, known: Mapping[str, tuple[list[float], list[float]]]) -> LatencyPanel:
    lanes = [
        Lane(label=f"p{_percentile(metric)} {role}", style=style, values=tuple(values))
        for metric, pair in known.items()
        for role, style, values in zip(("baseline", "candidate"), ("noise", "first"), pair, strict=True)
    ]
    mode, length = load
    words = [f"prompts of {length:,} tokens" if length else "", "shared prefix" if mode == "warm" else ""]
    label = f"{title} of every round, in ms; the table below has medians and ranges"
    return LatencyPanel(
        title=title,
        load=", ".join(filter(None, words)),
        strip=plots.strip(lanes, label=label),
        rows=tuple(_row(metric, *pair) for metric, pair in known.items()),
    )


def _row(metric: str, before: Sequence[float], after: Sequence[float]) -> LatencyRow:
    middle = median(before)
    return LatencyRow(
        percentile=f"p{_percentile(metric)}",
        baseline=f"{figures.plain(middle)} ms",
        baseline_span=_span(before),
        candidate=f"{figures.plain(median(after))} ms",
        candidate_span=_span(after),
        ratio=figures.number("ttft_p50_ratio", median(after) / middle) if middle else "",
    )


def _span(values: Sequence[float]) -> str:
    return f"{figures.plain(min(values))} to {figures.plain(max(values))}, {len(values)} rounds"


def _percentile(metric: str) -> str:
    return metric.removesuffix("_ms").rpartition("_p")[2]
