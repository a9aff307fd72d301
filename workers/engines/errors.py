"""How an engine can fail, as the run records it."""

from __future__ import annotations

from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.run import FailureKind


class EngineFailure(GatekeeperError):
    """The engine failed."""

    kind: FailureKind = "infrastructure"


class EngineRefused(EngineFailure):
    """The engine would not start."""

    kind: FailureKind = "refused"


class EngineDied(EngineFailure):
    """The engine ended after a good start."""

    kind: FailureKind = "died"


class EngineStalled(EngineFailure):
    """The engine made no progress within its deadline."""

    kind: FailureKind = "stalled"


class ProbeFailed(GatekeeperError):
    """A probe could not measure, although the engine lives."""


class Unsupported(ProbeFailed):
    """The engine does not offer what a probe needs."""


class RunCancelled(GatekeeperError):
    """The run was cancelled."""
