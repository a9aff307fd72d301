"""The view model of a run's page: the sections, put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gatekeeper.domain.plan import Plan
from gatekeeper.services.items import ItemView
from gatekeeper.services.views import ArtifactView, EventView, RunDetail
from gatekeeper.services.waivers import WaiverView
from gatekeeper.web import links
from gatekeeper.web.run_list import OPEN_STATES
from gatekeeper.web.sections.answer import Answer, Tiles, answer, tiles
from gatekeeper.web.sections.arms import ArmsSection, arms_section
from gatekeeper.web.sections.change import ChangeSection, change_section
from gatekeeper.web.sections.fidelity import Curve, context_curves, fidelity_curves
from gatekeeper.web.sections.findings import FindingsSection, findings_section
from gatekeeper.web.sections.latency import METRICS as LATENCY_METRICS
from gatekeeper.web.sections.latency import LatencyPanel, latency_panels
from gatekeeper.web.sections.measured import MeasuredSection, measured_section
from gatekeeper.web.sections.memory import MemorySection, memory_section
from gatekeeper.web.sections.retrieval import METRIC as RETRIEVED
from gatekeeper.web.sections.retrieval import HeatMap, heat_maps
from gatekeeper.web.sections.settings import SettingsSection, settings_section
from gatekeeper.web.sections.timeline import Timeline, timeline
from gatekeeper.web.sections.unseen import Unseen, unseen
from gatekeeper.web.sections.waivers import WaiversSection, waivers_section

ITEM_METRICS: Final = (RETRIEVED, *LATENCY_METRICS)
"""What the page shows item by item."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMaterial:
    """All that a run's page is made of."""

    run: RunDetail
    events: Sequence[EventView]
    artifacts: Sequence[ArtifactView]
    items: Sequence[ItemView]
    """Both arms' figures of the metrics in ITEM_METRICS."""
    waivers: Sequence[WaiverView] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Live:
    """Where a page that is not final learns of news: events that follow number `after`."""

    events_url: str
    after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPage:
    """A run's page. A section that is None has nothing to show."""

    name: str
    answer: Answer
    live: Live | None
    tiles: Tiles | None
    notes: tuple[str, ...]
    change: ChangeSection
    findings: FindingsSection
    waivers: WaiversSection | None
    curves: tuple[Curve, ...]
    context_curves: tuple[Curve, ...]
    heat_maps: tuple[HeatMap, ...]
    latencies: tuple[LatencyPanel, ...]
    memory: MemorySection | None
    unseen: tuple[Unseen, ...]
    measured: MeasuredSection | None
    settings: SettingsSection
    arms: ArmsSection
    timeline: Timeline | None
    api_url: str
    deltas_url: str
    items_url: str
    flips_url: str
    rejudge_url: str


def run_page(material: RunMaterial, *, now: datetime, base_url: str, needs_token: bool) -> RunPage:
    """Put the page together."""
    run = material.run
    plan = Plan.model_validate(run.plan)
    measured = measured_section(run, plan)
    return RunPage(
        name=run.name,
        answer=answer(run, base_url=base_url, needs_token=needs_token),
        live=_live(run, material.events),
        tiles=tiles(run),
        notes=run.notes,
        change=change_section(run, plan, now=now),
        findings=findings_section(run, plan.policy),
        waivers=waivers_section(run, material.waivers, now=now, needs_token=needs_token),
        curves=fidelity_curves(run, plan.policy),
        context_curves=context_curves(run, plan.policy),
        heat_maps=heat_maps(material.items),
        latencies=latency_panels(material.items),
        memory=memory_section(run, plan),
        unseen=unseen(run, plan, lacking=measured.lacking if measured else ()),
        measured=measured,
        settings=settings_section(run),
        arms=arms_section(run, plan, material.artifacts, now=now),
        timeline=timeline(material.events, now=now),
        api_url=links.api_run(run.run_id),
        deltas_url=links.api_deltas(run.run_id),
        items_url=links.api_items(run.run_id),
        flips_url=links.flips(run.run_id),
        rejudge_url=links.rejudge(run.run_id),
    )


def _live(run: RunDetail, events: Sequence[EventView]) -> Live | None:
    if run.state not in OPEN_STATES:
        return None
    return Live(events_url=links.api_events(run.run_id), after=events[-1].seq if events else 0)
