"""One setting of an engine: what was asked for, what it came to, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.measurement import Evidence

NOT_SAID: Final = "the engine did not say"


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One setting: what was asked for, what the engine came to, whether that agrees, and how it is known.

    `agrees` is None where that cannot be told; then `reason` says why.
    """

    setting: str
    requested: str
    effective: str | None
    agrees: bool | None
    evidence: Evidence | None = None
    reason: str = ""

    @property
    def sentence(self) -> str:
        """Both values in one phrase."""
        return f"{self.setting}: requested {self.requested}, effective {self.effective or 'not reported'}"


def by_layer(counts: Mapping[str, int]) -> str:
    """What the layers have, such as `uint8` if all have it, or `uint8 (28 layers), bfloat16 (2 layers)`."""
    return (
        next(iter(counts))
        if len(counts) == 1
        else ", ".join(f"{name} ({count} layers)" for name, count in counts.items())
    )
