"""A run for people at a terminal: plain lines of at most 100 columns, no colour."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence

from gatekeeper.domain.verdict import Delta, Finding, Outcome, SettingRow
from gatekeeper.reporting.figures import (
    CONTEXT_COLUMNS,
    context_rows,
    engine_phrase,
    interval,
    level,
    limit,
    noise_figures,
    of_group,
)
from gatekeeper.reporting.view import RunView

WIDTH = 100


def render_text(run: RunView) -> str:
    """The whole report. Its first line is the verdict word and the change's name."""
    parts: list[Iterable[str]] = [[f"{run.word}  {one_line(run.name)}"]]
    if run.sentence:
        parts.append(wrapped(run.sentence))
    if run.findings:
        parts.append(_findings(run.findings))
    if run.unruled_deltas:
        parts.append(_deltas(run.unruled_deltas))
    contexts = context_rows(run.deltas, run.noise)
    if contexts:
        parts.append(["By tokens of context", *columns(CONTEXT_COLUMNS, contexts)])
    if run.settings:
        parts.append(_settings(run.settings))
    parts.append(_facts(run))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def one_line(text: str) -> str:
    """The text without line breaks and control characters, which engines' logs and names may hold."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def wrapped(text: str, *, indent: str = "") -> list[str]:
    """The text as lines that fit WIDTH."""
    return textwrap.wrap(one_line(text), WIDTH, initial_indent=indent, subsequent_indent=indent)


def columns(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, whole: Collection[str] = ()
) -> list[str]:
    """Left-aligned columns that fit WIDTH, those named in `whole` never cut; the first line is the header."""
    cells = [[one_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    _fit(widths, [column for column, name in enumerate(header) if name not in whole])
    return ["".join(map(_cell, row, widths)).rstrip() for row in cells]


def _fit(widths: list[int], flexible: Sequence[int]) -> None:
    """Take from the widest flexible column until all fit beside each other."""
    room = WIDTH - 2 * len(widths)
    while sum(widths) > room and flexible:
        widest = max(flexible, key=lambda column: widths[column])
        if widths[widest] <= len("..."):
            return
        widths[widest] -= 1


def _cell(text: str, width: int) -> str:
    return "  " + (text if len(text) <= width else text[: width - 3] + "...").ljust(width)


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    percent = next((100 * finding.delta.confidence for finding in findings if finding.delta), None)
    yield "Findings" + (f" (one-sided bounds at {percent:g}% confidence)" if percent else "")
    rows = [_finding_row(finding) for finding in findings]
    header, *lines = columns(("outcome", "metric", "mode", "estimate", "limit", "n"), rows)
    yield header
    for finding, line in zip(findings, lines, strict=True):
        yield line
        if finding.outcome is not Outcome.PASSED:  # a passed rule's detail repeats its line
            yield from wrapped(finding.detail, indent="      ")


def _finding_row(finding: Finding) -> tuple[str, ...]:
    delta = finding.delta
    return (
        str(finding.outcome),
        of_group(finding.metric, finding.group),
        finding.mode,
        interval(delta) if delta else "-",
        limit(finding.rule),
        _count(delta) if delta else "-",
    )


def _count(delta: Delta) -> str:
    """Items, and of how many where the run was stopped before the rest."""
    return f"{delta.n}/{delta.planned}" if delta.planned and delta.planned > delta.n else str(delta.n)


def _deltas(deltas: Sequence[Delta]) -> Iterator[str]:
    yield "Measured, no rule"
    rows = [
        (
            of_group(delta.metric, delta.group),
            delta.mode,
            level(delta.metric, delta.baseline),
            level(delta.metric, delta.candidate),
            interval(delta),
        )
        for delta in deltas
    ]
    yield from columns(("metric", "mode", "baseline", "candidate", "estimate"), rows)


def _settings(settings: Sequence[SettingRow]) -> Iterator[str]:
    yield "Settings, requested and effective"
    marks = {True: "", False: "<-- DIFFERS", None: "not verified"}
    rows = [
        (
            row.arm,
            row.setting,
            row.requested,
            row.effective or "not reported",
            row.evidence or "-",
            marks[row.agrees],
        )
        for row in settings
    ]
    yield from columns(("arm", "setting", "requested", "effective", "known by", ""), rows)


def _facts(run: RunView) -> Iterator[str]:
    facts = [("noise floor", noise_figures(run.noise))]
    if run.run_id:
        facts.append(("engine", engine_phrase(run.engine)))
    facts += [("note", note) for note in run.notes]
    if run.run_id:
        facts.append(("run", " ".join(part for part in (run.run_id, run.url) if part)))
    for label, text in facts:
        lines = textwrap.wrap(one_line(text), WIDTH - 13, break_long_words=False) or [""]
        yield f"{label:13}{lines[0]}"
        yield from (" " * 13 + line for line in lines[1:])
