"""What a change changes: the settings in which two configurations differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

UNSET = "not set"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One setting of the configuration in which the arms differ."""

    setting: str
    baseline: str
    candidate: str


def differences(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The settings in which two configurations, as documents, differ; named as in a change file."""
    before, after = dict(_flat(baseline)), dict(_flat(candidate))
    return tuple(
        Difference(setting=name, baseline=_shown(before.get(name)), candidate=_shown(after.get(name)))
        for name in sorted(before.keys() | after.keys(), key=_rank)
        if before.get(name) != after.get(name)
    )


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value


def _rank(setting: str) -> tuple[bool, bool, str]:
    """Quantization and eviction first, their names before their parameters."""
    is_axis = setting.startswith(("quantization.", "eviction."))
    return not is_axis, not setting.endswith((".scheme", ".policy")), setting


def _shown(value: Any) -> str:
    match value:
        case None:
            return UNSET
        case bool():
            return "on" if value else "off"
        case _:
            return str(value)
