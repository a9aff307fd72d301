"""What readers get: runs, deltas, events and artifacts as plain values."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Delta, EngineInfo, Finding, Noise, Outcome, SettingRow, Verdict
from gatekeeper.domain.waiver import Waiver


class View(BaseModel):
    """A frozen value for readers."""

    model_config = ConfigDict(frozen=True)


class Progress(View):
    """How far a run is."""

    stage: str
    arm: str | None
    done: int
    total: int


class RunSummary(View):
    """A run in a list. `verdict` and `sentence` are null before the end and for cancelled runs.

    `candidate`: what differs from the baseline, in short. `ahead`: how many queued runs for the same kind of device
    came earlier; null unless this one waits.
    """

    run_id: UUID
    verdict: Verdict | None
    sentence: str | None
    state: RunState
    name: str
    model: str
    scheme: str
    eviction: str
    candidate: str
    ahead: int | None
    device: str
    repo: str | None
    commit: str | None
    author: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    cancel_requested: bool
    progress: Progress | None


class ArmView(View):
    """An arm of the present attempt. `reused`: the run `run_id`, an earlier one, launched it."""

    arm_id: int
    role: str
    run_id: UUID
    attempt: int
    reused: bool
    argv: tuple[str, ...]
    engine: EngineInfo | None
    effective: dict[str, Any] | None
    exercises: tuple[dict[str, Any], ...]
    skipped: tuple[tuple[str, str], ...]
    failure: dict[str, Any] | None
    complete: bool
    fingerprint: str | None
    started_at: datetime
    finished_at: datetime | None


class RunDetail(RunSummary):
    """A run with its report; the report's fields are empty before the end."""

    findings: tuple[Finding, ...] = ()
    deltas: tuple[Delta, ...] = ()
    noise: Noise = Noise()
    requested: dict[str, dict[str, Any]] = {}
    effective: dict[str, dict[str, Any]] = {}
    engine: EngineInfo | None = None
    settings: tuple[SettingRow, ...] = ()
    notes: tuple[str, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    suite: str
    policy: str
    change: dict[str, Any]
    plan: dict[str, Any]
    arms: tuple[ArmView, ...]


class DeltaView(Delta):
    """A delta with the run it belongs to and the outcome of the rule that speaks of it, if one does."""

    id: int
    run_id: UUID
    created_at: datetime
    model: str
    scheme: str
    eviction: str
    label: str
    finding: Outcome | None
    severity: str | None
    detail: str | None


class EventView(View):
    """Something that happened to a run."""

    seq: int
    at: datetime
    kind: str
    payload: dict[str, Any]


class EventBatch(View):
    """Events in order. `last`: the run is over and nothing follows them."""

    events: tuple[EventView, ...]
    last: bool


class ArtifactView(View):
    """A log or another text, without its content."""

    run_id: UUID
    attempt: int
    role: str
    name: str
    size_bytes: int
    truncated: bool


Item = TypeVar("Item", bound=BaseModel)


class Page(View, Generic[Item]):
    """One page of a list, and the cursor of the next; null on the last."""

    items: tuple[Item, ...]
    next_cursor: str | None
