"""Read what happened: runs, deltas across runs, events, artifacts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final
from uuid import UUID

from pydantic import AfterValidator, Field
from sqlalchemy.orm import Session

from gatekeeper.domain.base import Closed
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Outcome, Verdict
from gatekeeper.services import assemble, cursor
from gatekeeper.services.views import ArtifactView, DeltaView, EventBatch, Page, RunDetail, RunSummary
from gatekeeper.storage import arms, artifacts, events, queries, runs
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.queries import Headline, PastDelta

MAX_PAGE: Final = 200
EVENTS_AT_ONCE: Final = 500

HEADLINES: Final = ("decode_kl", "kv_capacity_ratio", "throughput_ratio")
"""The metrics that a list of runs shows."""
TREND: Final = 12

Words = Annotated[str, Field(min_length=1, max_length=200)]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE)]
Instant = Annotated[
    datetime, AfterValidator(lambda time: time if time.tzinfo is not None else time.replace(tzinfo=UTC))
]
"""A point in time; without an offset it is UTC."""


class RunFilters(Closed):
    """Which runs. `q` looks into name, model, repository, commit, author and run id.

    `ref`: a repository, or the beginning of a commit. `since` and `until`: submitted from then on, and before then.
    """

    model: Words | None = None
    verdict: Verdict | None = None
    state: RunState | None = None
    scheme: Words | None = None
    eviction: Words | None = None
    author: Words | None = None
    ref: Words | None = None
    since: Instant | None = None
    until: Instant | None = None
    q: Words | None = None
    limit: Limit = 50
    cursor: Words | None = None


class DeltaFilters(Closed):
    """Which deltas. `finding`: the outcome of the rule on them."""

    model: Words | None = None
    metric: Words | None = None
    scheme: Words | None = None
    finding: Outcome | None = None
    since: Instant | None = None
    limit: Limit = 100
    cursor: Words | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTable:
    """A page of runs with what a list shows of each.

    `headlines`: the HEADLINES, by run and metric; `trends`: for each run with a value, the first of them in its model's
    latest TREND runs up to it.
    """

    page: Page[RunSummary]
    headlines: Mapping[tuple[UUID, str], Headline]
    trends: Mapping[UUID, tuple[float, ...]]


def list_runs(sessions: Sessions, filters: RunFilters) -> Page[RunSummary]:
    """The newest runs first; stable while new ones arrive. Raises InvalidInput for a wrong cursor."""
    with transaction(sessions) as session:
        return _page(session, filters)


def list_runs_with_figures(sessions: Sessions, filters: RunFilters) -> RunTable:
    """The same with the figures of each run. Raises InvalidInput for a wrong cursor."""
    with transaction(sessions) as session:
        page = _page(session, filters)
        if not page.items:
            return RunTable(page=page, headlines={}, trends={})
        headlines = queries.list_headlines(session, [run.run_id for run in page.items], HEADLINES)
        return RunTable(page=page, headlines=headlines, trends=_trends(session, page.items))


def _page(session: Session, filters: RunFilters) -> Page[RunSummary]:
    after = cursor.decode_run(filters.cursor) if filters.cursor else None
    conditions = filters.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    rows = queries.list_runs(session, conditions, after=after, limit=filters.limit + 1)
    page = [assemble.run_summary(row) for row in rows[: filters.limit]]
    more = len(rows) > filters.limit
    return Page(items=tuple(page), next_cursor=cursor.encode_run(page[-1]) if more else None)


def _trends(session: Session, found: Sequence[RunSummary]) -> Mapping[UUID, tuple[float, ...]]:
    lengths = {model: count + TREND for model, count in Counter(run.model for run in found).items()}
    shown = {run.run_id for run in found}
    courses = queries.list_courses(session, HEADLINES[0], lengths, up_to=list(shown))
    return {
        run_id: tuple(value for _, value in reversed(course[place : place + TREND]))
        for course in courses.values()
        for place, (run_id, _) in enumerate(course)
        if run_id in shown
    }


def list_past(
    sessions: Sessions, model: str, metric: str, *, scheme: str | None = None
) -> tuple[PastDelta, ...]:
    """A metric of a model over its latest runs, the latest first; at most MAX_PAGE."""
    with transaction(sessions) as session:
        return tuple(queries.list_past(session, model, metric, scheme=scheme, limit=MAX_PAGE))


def get_run(sessions: Sessions, run_id: UUID) -> RunDetail:
    """One run with its report and arms. Raises NotFound."""
    with transaction(sessions) as session:
        run = runs.get_run(session, run_id)
        launched = arms.list_arms(session, run_id, run.attempt)
        return assemble.run_detail(run, launched, ahead=queries.count_ahead(session, run_id))


def list_deltas(sessions: Sessions, filters: DeltaFilters, *, run_id: UUID | None = None) -> Page[DeltaView]:
    """Deltas across runs, or of one, newest first. Raises NotFound for an unknown run."""
    after = cursor.decode_delta(filters.cursor) if filters.cursor else None
    with transaction(sessions) as session:
        conditions = filters.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
        if run_id is not None:
            conditions["run_id"] = runs.get_head(session, run_id).id
        rows = queries.list_deltas(session, conditions, after=after, limit=filters.limit + 1)
        page = [assemble.delta(row) for row in rows[: filters.limit]]
    more = len(rows) > filters.limit
    return Page(items=tuple(page), next_cursor=cursor.encode_delta(page[-1]) if more else None)


def events_after(sessions: Sessions, run_id: UUID, seq: int) -> EventBatch:
    """The events of a run that follow number `seq`. Raises NotFound."""
    with transaction(sessions) as session:
        # The state first: if it is final, every event is committed already and the next query sees them all.
        over = runs.get_head(session, run_id).state in (RunState.FINISHED, RunState.CANCELLED)
        rows = events.list_events(session, run_id, after=seq, limit=EVENTS_AT_ONCE)
        return EventBatch(
            events=tuple(assemble.event(row) for row in rows), last=over and len(rows) < EVENTS_AT_ONCE
        )


def list_artifacts(sessions: Sessions, run_id: UUID) -> list[ArtifactView]:
    """The artifacts of all attempts of a run. Raises NotFound."""
    with transaction(sessions) as session:
        runs.get_head(session, run_id)
        return [
            ArtifactView(
                run_id=run_id, attempt=attempt, role=role, name=name, size_bytes=size, truncated=truncated
            )
            for attempt, role, name, size, truncated in artifacts.list_artifacts(session, run_id)
        ]


def get_artifact(sessions: Sessions, run_id: UUID, *, attempt: int, role: str, name: str) -> str:
    """The text of one artifact. Raises NotFound."""
    with transaction(sessions) as session:
        return artifacts.get_artifact(session, (run_id, attempt, role, name)).content
