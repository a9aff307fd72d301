"""Where a reviewer goes from a verdict: the evidence that matters for it, and what can be tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from gatekeeper.domain.meaning import Meaning
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


def next_steps(run: RunDetail, meaning: Meaning | None, *, can_waive: bool) -> tuple[Step, ...]:
    """What helps after this verdict, the likeliest first; nothing before there is one.

    `can_waive`: the page has a form for it.
    """
    if meaning is None or run.verdict is None:
        return ()
    flips = Step(label="See the items that changed", url=links.flips(run.run_id))
    match run.verdict:
        case Verdict.PASS:
            return (flips,)
        case Verdict.FAIL if meaning.decided:
            return flips, *_turns(run, meaning, can_waive=can_waive), SUBMIT
        case Verdict.INCONCLUSIVE if meaning.decided:
            lacks = Step(label="See what each rule lacks", url="#findings")
            return lacks, *_turns(run, meaning, can_waive=can_waive), SUBMIT
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


def _turns(run: RunDetail, meaning: Meaning, *, can_waive: bool) -> Iterator[Step]:
    """What may turn the verdict without another measurement."""
    if meaning.margins_help:
        yield Step(label="Try other margins", url=links.rejudge(run.run_id))
    if meaning.waivers_help and can_waive:
        yield Step(label="Waive a metric", url="#waivers")
