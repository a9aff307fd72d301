"""The engine launches behind the figures: argv, pool, time, logs, and which modes really happened."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gatekeeper.domain.measurement import Exercise
from gatekeeper.domain.plan import Plan
from gatekeeper.services.views import ArmView, ArtifactView, RunDetail
from gatekeeper.web import figures, links
from gatekeeper.web.badges import Badge
from gatekeeper.web.run_list import OPEN_STATES
from gatekeeper.web.times import duration

PURPOSES: Final = {
    "baseline": "what is in production: 16-bit, full cache",
    "control": "the baseline launched a second time: the noise floor",
    "candidate": "the proposed change",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ArgvLine:
    """One flag with its value. `is_own`: the baseline has no such line."""

    text: str
    is_own: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmPanel:
    """One launch. `reused_from`: the page of the run that launched it, if that was another one."""

    role: str
    purpose: str
    badge: Badge
    cause: str
    took: str
    reused_from: str | None
    engine: str
    pool: tuple[tuple[str, str], ...]
    argv: tuple[ArgvLine, ...]
    skipped: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExerciseLine:
    """Whether a mode that was claimed happened."""

    arm: str
    suite: str
    mode: str
    counter: str
    moved: str
    expected: str
    badge: Badge


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """A log that was kept."""

    name: str
    role: str
    attempt: int
    size: str
    is_cut: bool
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmsSection:
    """Launches, modes and logs. `planned`: flags of arms that have not been launched, by role."""

    panels: tuple[ArmPanel, ...]
    planned: tuple[tuple[str, tuple[ArgvLine, ...]], ...]
    exercises: tuple[ExerciseLine, ...]
    logs: tuple[LogLine, ...]


def arms_section(
    run: RunDetail, plan: Plan, artifacts: Sequence[ArtifactView], *, now: datetime
) -> ArmsSection:
    """Describe every arm of the present attempt."""
    lines = {arm.role: argv_lines(arm.argv) for arm in run.arms}
    flags = {"baseline": plan.baseline.serve_flags, "candidate": plan.candidate.serve_flags}
    planned = {role: argv_lines(words) for role, words in flags.items() if role not in lines}
    known = {**planned, **lines}
    return ArmsSection(
        panels=tuple(_panel(arm, lines[arm.role], known, run, now) for arm in run.arms),
        planned=tuple((role, _marked(words, known, role)) for role, words in planned.items()),
        exercises=tuple(_exercise(arm.role, document) for arm in run.arms for document in arm.exercises),
        logs=tuple(_log(artifact) for artifact in artifacts),
    )


def argv_lines(argv: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line, quoted for a shell: the program, then each flag with its values."""
    lines: list[str] = []
    for word in map(shlex.quote, argv):
        if lines and not word.startswith("--"):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return tuple(lines)


def _panel(
    arm: ArmView, argv: Sequence[str], known: Mapping[str, Sequence[str]], run: RunDetail, now: datetime
) -> ArmPanel:
    is_live = run.state in OPEN_STATES and arm.finished_at is None and not arm.reused
    end = arm.finished_at or (now if is_live else None)
    return ArmPanel(
        role=arm.role,
        purpose=PURPOSES.get(arm.role, ""),
        badge=_badge(arm, is_live=is_live),
        cause=str((arm.failure or {}).get("cause", "")),
        took=duration(end - arm.started_at) if end else "",
        reused_from=links.run(arm.run_id) if arm.reused else None,
        engine=f"{arm.engine.name} {arm.engine.version}"
        if arm.engine
        else "starting"
        if is_live
        else "did not start",
        pool=_pool(arm.effective or {}),
        argv=_marked(argv, known, arm.role),
        skipped=arm.skipped,
    )


def _badge(arm: ArmView, *, is_live: bool) -> Badge:
    if arm.failure is not None:
        return Badge(word=str(arm.failure.get("kind", "failed")), symbol="cross", tone="fail")
    if arm.complete:
        return Badge(word="reused" if arm.reused else "measured", symbol="check", tone="pass")
    if is_live:
        return Badge(word="running", symbol="dot", tone="live")
    return Badge(word="incomplete", symbol="barred", tone="invalid")


def _pool(effective: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    tokens, size_bytes = effective.get("kv_cache_tokens"), effective.get("kv_cache_bytes")
    longest = effective.get("max_model_len")
    rows = {
        "KV pool": f"{tokens:,} tokens" if tokens else "",
        "At once": f"{tokens / longest:.1f} requests of {longest:,} tokens" if tokens and longest else "",
        "Pool memory": figures.size(size_bytes) if size_bytes else "",
        "Bytes per token": f"{size_bytes / tokens:,.0f}" if tokens and size_bytes else "",
        "Cache type": str(effective.get("cache_dtype") or ""),
        "Block size": str(effective.get("block_size") or ""),
    }
    return tuple((label, text) for label, text in rows.items() if text)


def _marked(argv: Sequence[str], known: Mapping[str, Sequence[str]], role: str) -> tuple[ArgvLine, ...]:
    """Mark what the candidate has and the baseline lacks."""
    reference = known.get("baseline") if role == "candidate" else None
    return tuple(ArgvLine(text=line, is_own=reference is not None and line not in reference) for line in argv)


def _exercise(role: str, document: Mapping[str, Any]) -> ExerciseLine:
    exercise = Exercise(**document)
    return ExerciseLine(
        arm=role,
        suite=exercise.suite,
        mode=exercise.mode,
        counter=exercise.counter,
        moved="not counted" if exercise.moved is None else figures.plain(exercise.moved),
        expected={"moved": "must move", "still": "must not move"}.get(exercise.expected, "may move"),
        badge=Badge(word="as claimed", symbol="check", tone="pass")
        if exercise.happened
        else Badge(word="not exercised", symbol="barred", tone="invalid"),
    )


def _log(artifact: ArtifactView) -> LogLine:
    return LogLine(
        name=artifact.name,
        role=artifact.role,
        attempt=artifact.attempt,
        size=figures.size(artifact.size_bytes),
        is_cut=artifact.truncated,
        url=links.api_artifact(
            artifact.run_id, attempt=artifact.attempt, role=artifact.role, name=artifact.name
        ),
    )
