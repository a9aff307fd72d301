"""Several candidates beside each other: what each costs in quality, what it takes in memory, and its verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gatekeeper.domain.pareto import Point, pareto_front
from gatekeeper.reporting.markdown import escaped, table
from gatekeeper.reporting.text import columns, wrapped

COSTS: Final[Mapping[str, tuple[str, str, float]]] = {
    "decode_nll": ("NLL change", "{:+.4f}", 1.0),
    "decode_kl": ("KL", "{:.4f}", 1.0),
    "retrieval_accuracy": ("retrieval, points", "{:+.1f}", 100.0),
    "accuracy": ("accuracy, points", "{:+.1f}", 100.0),
}
"""Metric of a run's deltas -> its heading, format and factor, in the order of the columns."""

COMPARED: Final = {"decode_nll": 1.0, "retrieval_accuracy": -1.0}
"""Metric -> the sign that makes it a cost. NLL and retrieval rank methods in opposite ways, so both count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """One candidate: its verdict's word, its run, and its bytes per token of context (None: unknown)."""

    name: str
    label: str
    verdict: str
    sentence: str
    kv_bytes: float | None
    run_id: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def point(self) -> Point | None:
        """What is compared; None where something of it was not measured."""
        known = {
            metric: sign * self.figures[metric] for metric, sign in COMPARED.items() if metric in self.figures
        }
        if self.kv_bytes is None or "decode_nll" not in known:
            return None
        return Point(name=self.name, costs={"kv_bytes": self.kv_bytes, **known})


@dataclass(frozen=True, kw_only=True, slots=True)
class Exploration:
    """What was tried on one model. `context`: tokens of the sequences that bytes are per token of."""

    name: str
    model: str
    context: int
    baseline_kv_bytes: float | None
    tried: Sequence[Tried]

    @property
    def front(self) -> frozenset[str]:
        """The candidates that no other beats in memory and in all that was measured of quality."""
        return pareto_front([one.point for one in self.tried if one.point is not None])

    @property
    def advice(self) -> str:
        """What to propose: of those that passed, the one with the fewest bytes."""
        passed = [one for one in self.tried if one.verdict == "PASS" and one.kv_bytes is not None]
        if not passed:
            return "None of them passed."
        best = min(passed, key=lambda one: (one.kv_bytes or 0.0, one.figures.get("decode_nll", 0.0)))
        return f"The smallest cache that passes: {best.name}, {best.kv_bytes:,.0f} bytes per token."


def figures_of(document: Mapping[str, Any]) -> dict[str, float]:
    """The estimates of a run's document that are shown, of all items in a cold cache."""
    found = {
        delta["metric"]: delta["estimate"]
        for delta in document.get("deltas") or ()
        if delta.get("mode") == "cold" and delta.get("group") == "all"
    }
    return {metric: float(found[metric]) for metric in COSTS if found.get(metric) is not None}


def _header(exploration: Exploration) -> tuple[list[str], list[str]]:
    """The headings, and which metrics have a column."""
    shown = [metric for metric in COSTS if any(metric in one.figures for one in exploration.tried)]
    return ["", "candidate", "verdict", "bytes/token", *(COSTS[metric][0] for metric in shown)], shown


def _rows(exploration: Exploration, shown: Sequence[str]) -> Iterator[list[str]]:
    front = exploration.front
    bytes_known = exploration.baseline_kv_bytes
    figure = "-" if bytes_known is None else f"{bytes_known:,.0f}"
    yield ["", "baseline: 16 bit, full cache", "-", figure, *("-" for _ in shown)]
    for one in exploration.tried:
        figures = (
            COSTS[metric][1].format(COSTS[metric][2] * one.figures[metric]) if metric in one.figures else "-"
            for metric in shown
        )
        kv_bytes = "-" if one.kv_bytes is None else f"{one.kv_bytes:,.0f}"
        yield ["*" if one.name in front else "", one.name, one.verdict, kv_bytes, *figures]


LEGEND: Final = "* no other is better in bytes and in quality (NLL, and retrieval where measured)"


def render_text(exploration: Exploration) -> str:
    """For people at a terminal."""
    header, shown = _header(exploration)
    parts = [
        [f"explore  {exploration.name} of {exploration.model}, sequences of {exploration.context:,} tokens"],
        columns(header, _rows(exploration, shown), whole=("candidate", "verdict")),
        [LEGEND, exploration.advice],
        [
            line
            for one in exploration.tried
            for line in (f"{one.verdict}  {one.name} ({one.label})", *wrapped(one.sentence, indent="    "))
        ],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def render_markdown(exploration: Exploration) -> str:
    """For a pull request."""
    header, shown = _header(exploration)
    lines = [
        f"### {escaped(exploration.name)} of {escaped(exploration.model)}",
        "",
        *table(header, list(_rows(exploration, shown))),
        "",
        escaped(LEGEND) + "  ",
        escaped(exploration.advice),
        "",
        *(f"- {one.verdict} {escaped(one.name)}: {escaped(one.sentence)}" for one in exploration.tried),
    ]
    return "\n".join(lines) + "\n"


def render_json(exploration: Exploration) -> str:
    """For programs."""
    front = exploration.front
    document = {
        "name": exploration.name,
        "model": exploration.model,
        "context": exploration.context,
        "baseline": {"kv_bytes_per_token": exploration.baseline_kv_bytes},
        "candidates": [
            {
                "name": one.name,
                "label": one.label,
                "verdict": one.verdict,
                "sentence": one.sentence,
                "run_id": one.run_id,
                "kv_bytes_per_token": one.kv_bytes,
                "on_front": one.name in front,
                **{metric: one.figures.get(metric) for metric in COSTS},
            }
            for one in exploration.tried
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


EXPLORATION_RENDERERS: Final[Mapping[str, Callable[[Exploration], str]]] = {
    "text": render_text,
    "json": render_json,
    "markdown": render_markdown,
}
