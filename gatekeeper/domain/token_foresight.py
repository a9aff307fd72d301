"""Before a run: which probes score tokens in a state of the engine, and after how much context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.probes import FidelityProbe, ModesProbe, SaturatedProbe
from gatekeeper.domain.suite import Suite

TokenProbe: TypeAlias = FidelityProbe | ModesProbe | SaturatedProbe


def scoring(suite: Suite, modes: Sequence[Mode]) -> list[TokenProbe]:
    """The probes that score tokens in these modes."""
    found: list[TokenProbe] = []
    for probe in suite.probes:
        match probe:
            case FidelityProbe() if {"cold", "warm"} & set(modes):
                found.append(probe)
            case ModesProbe() if set(probe.modes) & set(modes):
                found.append(probe)
            case SaturatedProbe() if "saturated" in modes:
                found.append(probe)
            case _:
                pass
    return found


def lacking_context(probes: Sequence[TokenProbe], rule: Rule, modes: Sequence[Mode]) -> str | None:
    """Which state has no document of the lengths that a rule names; a rule must be answered in all of its states."""
    if rule.context is None:
        return None
    start, end = rule.context
    for mode in modes:
        lengths = sorted({length for probe in probes for length in _contexts_in(probe, mode)})
        if not any(start <= length < end for length in lengths):
            listed = ", ".join(map(str, lengths))
            return f"in {mode} mode the suite scores after {listed} tokens of context only"
    return None


def _contexts_in(probe: TokenProbe, mode: Mode) -> tuple[int, ...]:
    match probe:
        case FidelityProbe():
            return probe.context_lengths if mode in ("cold", "warm") else ()
        case ModesProbe():
            return next((probe.context_lengths_in(own) for own in probe.modes if own == mode), ())
        case SaturatedProbe():
            return (probe.context_tokens,) if mode == "saturated" else ()
        case _:
            assert_never(probe)
