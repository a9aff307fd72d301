"""What the verdict does not speak of: states, metrics and settings that nothing exercised, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.measurement import Exercise
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.verdict import Outcome
from gatekeeper.services.views import RunDetail
from gatekeeper.web import figures

SILENT: Final = (Outcome.NOT_EXERCISED, Outcome.MISSING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unseen:
    """One thing, and why nothing is known of it."""

    what: str
    why: str


def unseen(run: RunDetail, plan: Plan, *, lacking: tuple[str, ...]) -> tuple[Unseen, ...]:
    """Everything of a run that was not exercised, most telling first. `lacking`: metrics without a figure."""
    found = [
        *_of_findings(run),
        *(Unseen(what="Declared, but beyond the suite", why=gap) for gap in plan.coverage_gaps),
        *_of_arms(run),
        *(
            Unseen(what=f"{row.arm}: {row.setting} {row.requested}", why=row.reason or "not verified")
            for row in run.settings
            if row.agrees is None
        ),
    ]
    if lacking:
        found.append(Unseen(what="Metrics without a figure", why=", ".join(lacking)))
    return tuple(dict.fromkeys(found))


def _of_findings(run: RunDetail) -> Iterator[Unseen]:
    for finding in run.findings:
        if finding.outcome in SILENT:
            name = figures.of_group(finding.metric, finding.group)
            yield Unseen(what=f"{name}, {finding.mode}", why=finding.detail)


def _of_arms(run: RunDetail) -> Iterator[Unseen]:
    for arm in run.arms:
        for probe, reason in arm.skipped:
            yield Unseen(what=f"{arm.role}: {probe}", why=reason)
        for document in arm.exercises:
            exercise = Exercise(**document)
            if not exercise.happened:
                why = f"{exercise.counter} {exercise.objection}"
                yield Unseen(what=f"{arm.role}: {exercise.suite}, {exercise.mode}", why=why)
