"""One launched engine configuration with all that was measured on it."""

from __future__ import annotations

from dataclasses import dataclass

from gatekeeper.domain.measurement import EffectiveConfig, Exercise, Measurement, Role, TokenTrace
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.run import ArmFailure
from gatekeeper.domain.verdict import EngineInfo


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmRecord:
    """What judging an arm needs. `failure` None and `complete` True: every probe of the suite ran to its end."""

    role: Role
    plan: ArmPlan
    argv: tuple[str, ...] = ()
    engine: EngineInfo | None = None
    effective: EffectiveConfig | None = None
    measurements: tuple[Measurement, ...] = ()
    traces: tuple[TokenTrace, ...] = ()
    exercises: tuple[Exercise, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    """Probes that could not run here: (probe, reason)."""
    failure: ArmFailure | None = None
    complete: bool = False
