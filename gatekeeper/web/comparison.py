"""The view model of several runs side by side."""

from __future__ import annotations

from dataclasses import dataclass

from gatekeeper.domain.differences import Setting
from gatekeeper.services.comparison import ComparedFigure, ComparedRun, ComparisonView
from gatekeeper.web import badges, figures, links
from gatekeeper.web.badges import Badge
from gatekeeper.web.run_list import Figure


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedHead:
    """The head of a column."""

    url: str
    name: str
    badge: Badge
    facts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRow:
    """One metric in one mode over all runs."""

    label: str
    mode: str
    cells: tuple[Figure, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Runs side by side. `warnings`: why their figures may not be comparable; `settings`: where they differ."""

    runs: tuple[ComparedHead, ...]
    warnings: tuple[str, ...]
    settings: tuple[Setting, ...]
    rows: tuple[ComparedRow, ...]
    api_url: str


def comparison(compared: ComparisonView) -> Comparison:
    """Write the figures as people read them."""
    return Comparison(
        runs=tuple(_head(run) for run in compared.runs),
        warnings=compared.warnings,
        settings=compared.settings,
        rows=tuple(
            ComparedRow(
                label=" ".join(filter(None, (figures.title(row.metric), figures.unit(row.metric)))),
                mode=row.mode,
                cells=tuple(_cell(row.metric, figure) for figure in row.figures),
            )
            for row in compared.metrics
        ),
        api_url=links.api_comparison([run.run_id for run in compared.runs]),
    )


def _head(run: ComparedRun) -> ComparedHead:
    engine = f"{run.engine.name} {run.engine.version}" if run.engine else ""
    return ComparedHead(
        url=links.run(run.run_id),
        name=run.name,
        badge=badges.of_run(run.state, run.verdict),
        facts=tuple(
            filter(None, (run.model, run.candidate, engine, f"suite {run.suite}", f"policy {run.policy}"))
        ),
    )


def _cell(metric: str, figure: ComparedFigure | None) -> Figure:
    if figure is None:
        return Figure(text=figures.NOT_MEASURED, is_measured=False)
    return Figure(
        text=figures.number(metric, figure.estimate),
        detail=figures.span(metric, figure.lower, figure.upper),
        badge=badges.of_finding(figure.finding, figure.severity) if figure.finding else None,
    )
