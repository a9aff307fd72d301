"""What can be said of a plan's rules before it runs, with the noise that earlier runs of its baseline showed."""

from __future__ import annotations

from pydantic import ValidationError
from sqlalchemy.orm import Session

from gatekeeper.domain.foresight import Foresight, foresee
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.verdict import Noise
from gatekeeper.storage import baselines


def foresight_of(session: Session, plan: Plan) -> tuple[Foresight, ...]:
    """One outlook per rule."""
    return foresee(plan, _known_noise(session, plan))


def _known_noise(session: Session, plan: Plan) -> Noise | None:
    """None also where an earlier version wrote what this one cannot read: then planning values will do."""
    document = baselines.find_noise(
        session,
        arm=plan.baseline.model_dump(mode="json"),
        suite=plan.suite.model_dump(mode="json"),
        concurrency=plan.concurrency,
        request_rate=plan.change.deployment.request_rate,
    )
    try:
        return None if document is None else Noise.model_validate(document, extra="ignore")
    except ValidationError:
        return None
