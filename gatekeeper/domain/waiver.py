"""A waiver: a named person's dated, expiring exception for one metric of one change.

It excuses a blocking rule that was answered: a regression, or evidence too small to decide. What was not measured, a
value that is not a number, an engine that died or a setting that was not applied can't be excused, since nobody knows
what would be accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from gatekeeper.domain.base import Closed

LONGEST: Final = timedelta(days=90)
"""No waiver lasts longer: what is to hold for good belongs into a policy, where it is reviewed."""

Words = Annotated[str, Field(min_length=1, max_length=500)]


class Waiver(Closed):
    """One waiver as it was in force when a run was judged. `owner` answers for it."""

    id: int
    metric: str
    owner: Words
    reason: Words
    granted_at: AwareDatetime
    expires_at: AwareDatetime

    @property
    def phrase(self) -> str:
        """Who excused the rule, until when and why."""
        return f"waived by {self.owner} until {self.expires_at:%Y-%m-%d}, because {self.reason.rstrip('.')}"


def expiry_problem(expires_at: datetime, now: datetime) -> str | None:
    """Why a waiver cannot last until then, or None if it can."""
    if expires_at <= now:
        return "is in the past"
    return f"is more than {LONGEST.days} days away" if expires_at > now + LONGEST else None


def waiver_of(metric: str, waivers: Sequence[Waiver]) -> Waiver | None:
    """The waiver that excuses a metric; of several the one that lasts longest."""
    found = [waiver for waiver in waivers if waiver.metric == metric]
    return max(found, key=lambda waiver: (waiver.expires_at, waiver.id)) if found else None
