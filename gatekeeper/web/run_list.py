"""The view model of the run list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias, cast
from uuid import UUID

from gatekeeper.domain.policy import Severity
from gatekeeper.domain.run import RunState
from gatekeeper.services.views import Progress, RunSummary
from gatekeeper.storage.queries import Headline
from gatekeeper.web import badges, figures, links, plots
from gatekeeper.web.badges import Badge
from gatekeeper.web.plots import Spark
from gatekeeper.web.times import Moment, moment

Headlines: TypeAlias = Mapping[tuple[UUID, str], Headline]
"""By run and metric."""
Trends: TypeAlias = Mapping[UUID, Sequence[float]]
"""By run: decode KL of its model's latest runs up to it."""

OPEN_STATES = (RunState.QUEUED, RunState.RUNNING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One number of a run; `detail`: its bounds, `badge`: what the rule on it came to."""

    text: str
    detail: str = ""
    badge: Badge | None = None
    is_measured: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressView:
    """How far a run is. `total` None: it waits; 0: it works, and nothing can be counted."""

    text: str
    done: int = 0
    total: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLine:
    """One row of the list."""

    run_id: str
    url: str
    badge: Badge
    name: str
    model: str
    candidate: str
    decode_kl: Figure
    trend: Spark | None
    capacity: Figure
    throughput: Figure
    progress: ProgressView | None
    author: str
    ref: str
    submitted: Moment


def run_lines(
    runs: Sequence[RunSummary], headlines: Headlines, trends: Trends, *, now: datetime
) -> tuple[RunLine, ...]:
    """The rows of a page of runs."""
    return tuple(_line(run, headlines, trends.get(run.run_id, ()), now) for run in runs)


def ref_label(repo: str | None, commit: str | None) -> str:
    """Where a change comes from; long hashes are cut as Git does."""
    short = commit[:8] if commit else ""
    return f"{repo}@{short}" if repo and short else repo or short


def progress_view(run: RunSummary) -> ProgressView | None:
    """The progress of a run that is not over."""
    progress = run.progress
    if run.state not in OPEN_STATES:
        return None
    if run.cancel_requested:
        return ProgressView(text="cancelling", total=0)
    if run.state is RunState.QUEUED:
        return ProgressView(text=f"waiting for a worker{f', {run.ahead} ahead' if run.ahead else ''}")
    if progress is None:
        return ProgressView(text=progress_text(None), total=0)
    total = progress.total if progress.total > 1 else 0
    return ProgressView(text=progress_text(progress), done=progress.done, total=total)


def progress_text(progress: Progress | None) -> str:
    """How far a running run is, such as `candidate: fidelity 4/16`."""
    if progress is None:
        return "starting"
    counted = f" {progress.done}/{progress.total}" if progress.total > 1 else ""
    return f"{progress.arm}: {progress.stage}{counted}" if progress.arm else f"{progress.stage}{counted}"


def _trend(values: Sequence[float]) -> Spark | None:
    """One value is no course."""
    if len(values) < 2:
        return None
    told = ", ".join(figures.number("decode_kl", value) for value in values)
    return plots.spark(values, label=f"Decode KL of this model's last {len(values)} runs up to this: {told}")


def _line(run: RunSummary, headlines: Headlines, trend: Sequence[float], now: datetime) -> RunLine:
    def figure(metric: str) -> Figure:
        return _figure(metric, headlines.get((run.run_id, metric)), is_open=run.state in OPEN_STATES)

    return RunLine(
        run_id=str(run.run_id),
        url=links.run(run.run_id),
        badge=badges.of_run(run.state, run.verdict),
        name=run.name,
        model=run.model,
        candidate=run.candidate,
        decode_kl=figure("decode_kl"),
        trend=_trend(trend),
        capacity=figure("kv_capacity_ratio"),
        throughput=figure("throughput_ratio"),
        progress=progress_view(run),
        author=run.author or "",
        ref=ref_label(run.repo, run.commit),
        submitted=moment(run.created_at, now=now),
    )


def _figure(metric: str, headline: Headline | None, *, is_open: bool) -> Figure:
    if headline is None:
        return Figure(text="not yet" if is_open else figures.NOT_MEASURED, is_measured=False)
    badge = None
    if headline.finding is not None:
        badge = badges.of_finding(headline.finding, cast("Severity | None", headline.severity))
    return Figure(
        text=figures.number(metric, headline.estimate),
        detail=figures.span(metric, headline.lower, headline.upper),
        badge=badge,
    )
