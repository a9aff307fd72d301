"""What can be said of a change before it runs, for the page of the form."""

from __future__ import annotations

from dataclasses import dataclass

from gatekeeper.services.submit import Preview
from gatekeeper.web import badges, figures
from gatekeeper.web.badges import Badge


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedArm:
    """What one arm would be."""

    role: str
    flags: tuple[str, ...]
    per_token: str
    pool: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOutlook:
    """Whether the suite can decide a rule of the policy, and why."""

    name: str
    only_warns: bool
    badge: Badge
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """What can be said of a change before it runs: arms, gaps, and whether each rule can be decided."""

    name: str
    arms: tuple[PlannedArm, ...]
    gaps: tuple[str, ...]
    rules: tuple[RuleOutlook, ...]


def outlook(preview: Preview) -> Outlook:
    """What a run of the change would be."""
    return Outlook(
        name=preview.plan.change.label,
        arms=tuple(
            PlannedArm(
                role=role,
                flags=arm.flags,
                per_token="" if arm.kv_bytes_per_token is None else f"{arm.kv_bytes_per_token:,.0f} bytes",
                pool="" if arm.kv_pool_bytes is None else figures.size(arm.kv_pool_bytes),
            )
            for role, arm in preview.arms.items()
        ),
        gaps=(*preview.coverage_gaps, *filter(None, (preview.plan.undeclared,))),
        rules=tuple(
            RuleOutlook(
                name=figures.of_group(seen.metric, seen.group),
                only_warns=seen.severity == "warn",
                badge=badges.OUTLOOKS[seen.outlook],
                sentence=seen.sentence,
            )
            for seen in preview.foresight
        ),
    )
