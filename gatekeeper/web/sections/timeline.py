"""Where the time went: the stages of a run, from its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gatekeeper.domain.run import RunState
from gatekeeper.services.views import EventView
from gatekeeper.web import plots
from gatekeeper.web.times import duration

STAGES: Final = {
    "launch": "launch the engine",
    "capacity": "capacity",
    "fidelity": "fidelity",
    "accuracy": "accuracy",
    "retrieval": "retrieval",
    "performance": "performance",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A stretch of time. `x` and `width` in per mille of the whole."""

    name: str
    arm: str
    attempt: int
    began: str
    took: str
    style: str
    x: float
    width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """The stages in order, the whole time they took, and single remarks."""

    stages: tuple[Stage, ...]
    total: str
    remarks: tuple[str, ...]
    has_attempts: bool


@dataclass(frozen=True, slots=True)
class _Span:
    name: str
    arm: str
    attempt: int
    start: datetime
    end: datetime


def timeline(events: Sequence[EventView], *, now: datetime) -> Timeline | None:
    """The stages that the events tell of; one that has not ended lasts until `now`."""
    spans = _spans(events, now)
    if not spans:
        return None
    first, last = spans[0].start, spans[-1].end
    return Timeline(
        stages=tuple(_stage(span, first, last) for span in spans),
        total=duration(last - first),
        remarks=_remarks(events),
        has_attempts=len({span.attempt for span in spans}) > 1,
    )


def _stage(span: _Span, first: datetime, last: datetime) -> Stage:
    whole = (last - first).total_seconds()
    return Stage(
        name=span.name,
        arm=span.arm,
        attempt=span.attempt,
        began=f"+{duration(span.start - first)}",
        took=duration(span.end - span.start),
        style=span.arm or "other",
        x=plots.share((span.start - first).total_seconds(), whole),
        width=max(plots.share((span.end - span.start).total_seconds(), whole), 2.0),
    )


def _spans(events: Sequence[EventView], now: datetime) -> list[_Span]:
    """Consecutive events of one stage are one span; it ends where the next begins, or the run does."""
    starts: list[tuple[str, str, int, datetime]] = []
    attempt = 1
    for event in events:
        found = _began(event)
        if found is None:
            continue
        attempt = int(event.payload.get("attempt", attempt))
        if not starts or starts[-1][:3] != (*found, attempt):
            starts.append((*found, attempt, event.at))
    ends = [start[3] for start in starts[1:]] + [max(now, events[-1].at)] if starts else []
    return [_Span(*start, end) for start, end in zip(starts, ends, strict=True) if start[0]]


def _began(event: EventView) -> tuple[str, str] | None:
    """The stage and the arm that an event begins or goes on with; no stage: the run is over. None: neither."""
    match event.kind, event.payload:
        case "state", {"state": RunState.QUEUED}:
            return "wait for a worker", ""
        case "state", {"state": RunState.RUNNING}:
            return "prepare", ""
        case "state", {"state": RunState.FINISHED | RunState.CANCELLED}:
            return "", ""
        case "progress", {"stage": str(stage), "arm": arm}:
            return STAGES.get(stage, stage), str(arm or "")
        case _:
            return None


def _remarks(events: Sequence[EventView]) -> tuple[str, ...]:
    words = {
        "baseline_reused": "The baseline and its noise floor were measured earlier and reused.",
        "cancel_requested": "Cancelling was asked for.",
        "waived": "A waiver was granted, and the run judged again.",
        "waiver_revoked": "A waiver was revoked, and the run judged again.",
    }
    return tuple(dict.fromkeys(words[event.kind] for event in events if event.kind in words))
