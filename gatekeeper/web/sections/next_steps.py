"""Where a reviewer goes from a verdict: the evidence that matters for it, and what can be tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from gatekeeper.domain.verdict import Verdict
from gatekeeper.services.views import RunDetail
from gatekeeper.web import links


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A link: an address, or a section of the same page."""

    label: str
    url: str


LOGS = Step(label="Read the engines' logs", url="#logs")
SUBMIT = Step(label="Propose another change", url="/submit")


def next_steps(run: RunDetail, *, can_waive: bool) -> tuple[Step, ...]:
    """What helps after this verdict, the likeliest first; nothing before there is one."""
    waive = (Step(label="Waive a metric", url="#waivers"),) if can_waive else ()
    flips = Step(label="See the items that changed", url=links.flips(run.run_id))
    margins = Step(label="Try other margins", url=links.rejudge(run.run_id))
    match run.verdict:
        case None:
            return ()
        case Verdict.PASS:
            return (flips,)
        case Verdict.FAIL if run.findings:
            return flips, margins, *waive, SUBMIT
        case Verdict.INCONCLUSIVE if run.findings:
            return Step(label="See what each rule lacks", url="#findings"), margins, SUBMIT
        case Verdict.INVALID if any(row.agrees is False for row in run.settings):
            return Step(label="Compare what was asked for with what ran", url="#settings"), LOGS, SUBMIT
        case Verdict.INVALID if run.findings:
            return Step(label="See what was not exercised", url="#not-exercised"), LOGS, SUBMIT
        case Verdict.FAIL | Verdict.INCONCLUSIVE | Verdict.INVALID:
            return Step(label="See how far each arm came", url="#arms"), LOGS, SUBMIT
        case Verdict.ERROR:
            return (LOGS,)
        case _:
            assert_never(run.verdict)
