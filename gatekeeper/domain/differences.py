"""What a change changes: the settings in which two configurations differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNSET = "not set"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One setting of the configuration in which the arms differ."""

    setting: str
    baseline: str
    candidate: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One setting in which several configurations differ, with the value of each, in their order."""

    name: str
    values: tuple[str, ...]


def differences(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The settings in which two configurations, as documents, differ; named as in a change file."""
    return tuple(
        Difference(setting=setting.name, baseline=setting.values[0], candidate=setting.values[1])
        for setting in differing([baseline, candidate])
    )


def differing(documents: Sequence[Mapping[str, Any]]) -> tuple[Setting, ...]:
    """The settings that are not the same in all configurations; named as in a change file."""
    flat = [dict(_flat(document)) for document in documents]
    return tuple(
        Setting(name=name, values=tuple(_shown(settings.get(name)) for settings in flat))
        for name in sorted({name for settings in flat for name in settings}, key=_rank)
        if any(settings.get(name) != flat[0].get(name) for settings in flat)
    )


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            yield from _flat({str(number): entry for number, entry in enumerate(value)}, f"{prefix}{key}.")
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
