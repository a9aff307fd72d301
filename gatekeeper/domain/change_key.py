"""What makes two plans plans of the same change, so that a waiver of one holds for the other."""

from __future__ import annotations

import hashlib
import json

from gatekeeper.domain.plan import Plan


def change_key(plan: Plan) -> str:
    """What the plans of the same change share: all that is run, on what, and for which deployment.

    Names of change and model and where the change came from say nothing about what it does; suite and policy only how
    it is looked at, and with the suite vary the lengths that no configuration sets.
    """
    candidate = plan.candidate
    proposed = {
        "model": candidate.model.model_dump(mode="json", include={"source", "revision"}),
        "engine": candidate.engine,
        "device": candidate.device,
        "baseline": plan.baseline.config.model_dump(mode="json"),
        "candidate": candidate.config.model_dump(mode="json"),
        "deployment": plan.change.deployment.model_dump(mode="json"),
    }
    return hashlib.sha256(json.dumps(proposed, sort_keys=True).encode()).hexdigest()
