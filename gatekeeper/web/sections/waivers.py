"""The exceptions to a run's rules, and the form that grants one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.verdict import Outcome
from gatekeeper.domain.waiver import LONGEST
from gatekeeper.services.views import RunDetail
from gatekeeper.services.waivers import WaiverView, excusable_metrics
from gatekeeper.web import links


@dataclass(frozen=True, kw_only=True, slots=True)
class WaiverRow:
    """One waiver. `revoke_url` None: it holds no more, or the page may not end it."""

    metric: str
    owner: str
    reason: str
    until: str
    state: str
    revoke_url: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WaiverForm:
    """What can be excused (value and title), and the last day that may be named."""

    url: str
    metrics: tuple[tuple[str, str], ...]
    first_day: str
    last_day: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WaiversSection:
    """The waivers granted on a run; `form` None where nothing can be excused from the page."""

    rows: tuple[WaiverRow, ...]
    form: WaiverForm | None


def waivers_section(
    run: RunDetail, granted: Sequence[WaiverView], *, now: datetime, needs_token: bool
) -> WaiversSection | None:
    """None where there is nothing to excuse and nothing was."""
    rows = tuple(_row(run, waiver, needs_token=needs_token) for waiver in granted)
    form = None if needs_token else _form(run, now)
    return WaiversSection(rows=rows, form=form) if rows or form else None


def _row(run: RunDetail, waiver: WaiverView, *, needs_token: bool) -> WaiverRow:
    state = "in force" if waiver.in_force else "revoked" if waiver.revoked_at else "expired"
    url = links.action(run.run_id, f"waivers/{waiver.id}/revoke")
    return WaiverRow(
        metric=_title(waiver.metric),
        owner=waiver.owner,
        reason=waiver.reason,
        until=f"{waiver.expires_at:%Y-%m-%d %H:%M}",
        state=state,
        revoke_url=url if waiver.in_force and not needs_token else None,
    )


def _form(run: RunDetail, now: datetime) -> WaiverForm | None:
    already = {f.metric for f in run.findings if f.outcome is Outcome.WAIVED}
    metrics = tuple((name, _title(name)) for name in excusable_metrics(run.findings) if name not in already)
    if not metrics:
        return None
    return WaiverForm(
        url=links.action(run.run_id, "waive"),
        metrics=metrics,
        first_day=f"{now + timedelta(days=1):%Y-%m-%d}",
        last_day=f"{now + LONGEST:%Y-%m-%d}",
    )


def _title(metric: str) -> str:
    known = METRICS.get(metric)
    return known.title if known else metric
