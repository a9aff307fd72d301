"""Was the change really in effect? What was requested, and what the engine says it runs with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.verdict import SettingRow
from gatekeeper.services.views import RunDetail
from gatekeeper.web.badges import Badge

AGREEMENT: Final[Mapping[bool | None, Badge]] = {
    True: Badge(word="agrees", symbol="check", tone="pass"),
    False: Badge(word="differs", symbol="cross", tone="fail"),
    None: Badge(word="not verified", symbol="question", tone="quiet"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingLine:
    """One setting of one arm. `known_by`: how the effective value is known, or why it cannot be verified."""

    setting: str
    requested: str
    effective: str
    known_by: str
    badge: Badge
    is_mismatch: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSettings:
    """The settings of one arm."""

    arm: str
    lines: tuple[SettingLine, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingsSection:
    """Requested against effective, arm by arm."""

    arms: tuple[ArmSettings, ...]
    mismatches: int


def settings_section(run: RunDetail) -> SettingsSection:
    """The comparison of every arm that started, mismatches first: arms that have any, and in each arm its own."""
    differing = {row.arm for row in run.settings if row.agrees is False}
    names = sorted(dict.fromkeys(row.arm for row in run.settings), key=lambda name: name not in differing)
    return SettingsSection(
        arms=tuple(ArmSettings(arm=name, lines=_lines(run, name)) for name in names),
        mismatches=sum(row.agrees is False for row in run.settings),
    )


def _lines(run: RunDetail, arm: str) -> tuple[SettingLine, ...]:
    lines = [_line(row) for row in run.settings if row.arm == arm]
    return tuple(sorted(lines, key=lambda line: not line.is_mismatch))


def _line(row: SettingRow) -> SettingLine:
    return SettingLine(
        setting=row.setting,
        requested=row.requested,
        effective=row.effective or "not reported",
        known_by=", ".join(filter(None, (row.evidence, row.reason))),
        badge=AGREEMENT[row.agrees],
        is_mismatch=row.agrees is False,
    )
