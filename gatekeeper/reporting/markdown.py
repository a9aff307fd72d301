"""A run as a pull-request comment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gatekeeper.domain.verdict import Finding, SettingRow
from gatekeeper.reporting.figures import (
    CONTEXT_COLUMNS,
    context_rows,
    engine_phrase,
    interval,
    level,
    limit,
    noise_figures,
    of_group,
    title,
)
from gatekeeper.reporting.text import one_line
from gatekeeper.reporting.view import RunView

SPECIAL = re.compile(r"([\\`*_\[\]<>|#~!])")


def render_markdown(run: RunView) -> str:
    """Heading, sentence, findings; what was measured besides and the settings are folded away."""
    return "\n".join(_lines(run)) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in a table cell too; `@` and `#` call nobody."""
    return SPECIAL.sub(r"\\\1", one_line(text)).replace("@", "@&#8203;")


def _lines(run: RunView) -> Iterator[str]:
    yield f"### {run.word}: {escaped(run.name)}"
    if run.sentence:
        yield f"\n{escaped(run.sentence)}"
    if run.findings:
        yield ""
        yield from table(
            ("outcome", "metric", "mode", "estimate", "limit", "n", "detail"), _finding_rows(run.findings)
        )
    yield from (f"\n> {escaped(note)}" for note in run.notes)
    if run.unruled_deltas:
        yield from _folded("Measured, no rule", list(_delta_table(run)))
    contexts = context_rows(run.deltas, run.noise)
    if contexts:
        yield from _folded("By tokens of context", list(table(CONTEXT_COLUMNS, contexts)))
    if run.settings:
        count = sum(row.agrees is False for row in run.settings)
        summary = "Settings, requested and effective" + (f" ({count} differ)" if count else "")
        yield from _folded(summary, list(_settings_table(run.settings)))
    yield f"\nNoise floor: {escaped(noise_figures(run.noise))}  "
    if not run.run_id:
        return
    yield f"Engine: {escaped(engine_phrase(run.engine))}  "
    link = f"[{escaped(run.run_id)}]({run.url})" if run.url else escaped(run.run_id)
    yield f"Run: {link}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table, line by line."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(escaped(cell) for cell in row)} |"


def _folded(summary: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"\n<details><summary>{summary}</summary>\n"
    yield from lines
    yield "\n</details>"


def _finding_rows(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    return [
        (
            str(finding.outcome),
            of_group(finding.metric, finding.group),
            finding.mode,
            interval(finding.delta) if finding.delta else "-",
            limit(finding.rule),
            str(finding.delta.n) if finding.delta else "-",
            finding.detail,
        )
        for finding in findings
    ]


def _delta_table(run: RunView) -> Iterator[str]:
    rows = [
        (
            title(delta.metric),
            delta.group,
            delta.mode,
            level(delta.metric, delta.baseline),
            level(delta.metric, delta.candidate),
            interval(delta),
        )
        for delta in run.unruled_deltas
    ]
    yield from table(("metric", "group", "mode", "baseline", "candidate", "estimate"), rows)


def _settings_table(settings: Sequence[SettingRow]) -> Iterator[str]:
    agreement = {True: "yes", False: "NO", None: "not verified"}
    rows = [
        (
            row.arm,
            row.setting,
            row.requested,
            row.effective or "not reported",
            agreement[row.agrees] + (f": {row.reason}" if row.reason else ""),
            row.evidence or "-",
        )
        for row in settings
    ]
    yield from table(("arm", "setting", "requested", "effective", "agree", "known by"), rows)
