"""The life of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class RunState(StrEnum):
    """queued -> running -> finished; cancelled from either of the first two; finished ERROR -> queued by a retry."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


FailureKind = Literal["refused", "died", "stalled", "infrastructure"]
"""refused: the engine would not start; died: it ended after a good start; stalled: no progress within the deadline;
infrastructure: the worker, the device or a service around the engine failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmFailure:
    """Why an arm has no complete measurements. `cause`: the engine's own root-cause line, or ours."""

    role: Literal["baseline", "control", "candidate"]
    kind: FailureKind
    cause: str
    repeated: bool = False
    """True if the same arm already failed after a good start in an earlier attempt of this run."""
