"""One launched engine configuration with all that was measured on it."""

from __future__ import annotations

from dataclasses import dataclass

from gatekeeper.domain.measurement import EffectiveConfig, Exercise, Measurement, Mode, Role, Stop, TokenTrace
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
    stops: tuple[Stop, ...] = ()
    """Probes that ended before their last batch, because more would decide nothing."""
    failure: ArmFailure | None = None
    complete: bool = False

    def stop_of(self, suite: str, mode: Mode) -> Stop | None:
        """How a probe was ended early in this mode, or None."""
        return next((stop for stop in self.stops if (stop.suite, stop.mode) == (suite, mode)), None)

    @property
    def sound(self) -> bool:
        """True if it may stand for its configuration in other runs: nothing failed, nothing is missing."""
        finite = all(measurement.value is not None for measurement in self.measurements)
        scored = all(
            None not in trace.token_logprobs and not any(None in row for row in trace.top_logprobs)
            for trace in self.traces
        )
        return self.complete and finite and scored and all(exercise.happened for exercise in self.exercises)
