"""A run as a pull-request comment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gatekeeper.domain.sentence import in_parts
from gatekeeper.domain.verdict import Finding, Outcome, SettingRow, Verdict
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


MARKS: Final[Mapping[Verdict | Outcome, str]] = {
    Verdict.PASS: "\N{WHITE HEAVY CHECK MARK}",
    Verdict.FAIL: "\N{CROSS MARK}",
    Verdict.INCONCLUSIVE: "\N{BLACK QUESTION MARK ORNAMENT}",
    Verdict.INVALID: "\N{NO ENTRY SIGN}",
    Verdict.ERROR: "\N{WARNING SIGN}",
    Outcome.PASSED: "\N{WHITE HEAVY CHECK MARK}",
    Outcome.REGRESSED: "\N{CROSS MARK}",
    Outcome.INCONCLUSIVE: "\N{BLACK QUESTION MARK ORNAMENT}",
    Outcome.NOT_EXERCISED: "\N{NO ENTRY SIGN}",
    Outcome.MISSING: "\N{NO ENTRY SIGN}",
    Outcome.ERRORED: "\N{WARNING SIGN}",
    Outcome.WAIVED: "\N{WAVING WHITE FLAG}",
}
"""A glance's worth, always beside the word."""
CLOSING: Final = (Outcome.REGRESSED, Outcome.NOT_EXERCISED, Outcome.MISSING, Outcome.ERRORED)
"""What closes the gate where a blocking rule comes to it, other than by being undecided."""


def render_markdown(run: RunView) -> str:
    """What happened, what to do, what was changed and why; what passed and all else is folded away."""
    return "\n".join(_lines(run)) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in a table cell too; `@` and `#` call nobody."""
    return _inert(one_line(text))


def _inert(line: str) -> str:
    return SPECIAL.sub(r"\\\1", line).replace("@", "@&#8203;")


def _lines(run: RunView) -> Iterator[str]:
    yield f"### {MARKS[run.verdict] + ' ' if run.verdict else ''}{run.word}: {escaped(run.name)}"
    yield from _answer(run)
    yield from _findings(run.findings)
    if run.notes:
        yield ""
        yield from (f"> - {escaped(note)}" for note in run.notes)
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


def _answer(run: RunView) -> Iterator[str]:
    """What it means for the rollout, where the evidence is, what was changed, and what decided."""
    meaning = run.meaning
    said = [f"**{meaning.gate}.**", *([_prose(meaning.advice)] if run.run_id else [])] if meaning else []
    if run.url:
        said.append(f"[The evidence]({run.url}), [item by item]({run.url}/items).")
    if said:
        yield "\n" + " ".join(said)
    changed = [
        f"{escaped(row.setting)} {escaped(row.baseline)} \N{RIGHTWARDS ARROW} **{escaped(row.candidate)}**"
        for row in run.differences
    ]
    if changed:
        yield f"\nThe change{f' to {escaped(run.model)}' if run.model else ''}: {', '.join(changed)}"
    if run.verdict and run.sentence:
        reasons, besides = in_parts(run.verdict, run.sentence, run.findings)
        yield ""
        yield from (f"- {_sentence(reason)}" for reason in reasons)
        if besides:
            yield ("\n" if reasons else "") + _sentence(besides)


def _prose(text: str) -> str:
    """Escaped, but for code between backticks."""
    parts = one_line(text).split("`")
    return "".join(f"`{part}`" if place % 2 else _inert(part) for place, part in enumerate(parts))


def _sentence(text: str) -> str:
    return escaped(text[:1].upper() + text[1:])


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    """What did not pass, what passed folded away; a detail only where it says more than its line."""
    passed = [finding for finding in findings if finding.outcome is Outcome.PASSED]
    others = [finding for finding in findings if finding.outcome is not Outcome.PASSED]
    header = ("outcome", "metric", "mode", "estimate", "limit", "n")
    if others:
        yield ""
        yield from table((*header, "detail"), [(*_finding_row(found), _detail(found)) for found in others])
    if passed:
        count = f"{len(passed)} rule{'s' if len(passed) > 1 else ''} passed"
        yield from _folded(
            f"{MARKS[Outcome.PASSED]} {count}", list(table(header, list(map(_finding_row, passed))))
        )


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


def _detail(finding: Finding) -> str:
    """Nothing where a blocking rule's figures stand above, among what decided."""
    is_said = finding.outcome is Outcome.REGRESSED and finding.rule.severity == "block" and finding.delta
    return "" if is_said else finding.detail


def _mark(finding: Finding) -> str:
    """A rule that only warns never looks like one that closed the gate."""
    is_warning = finding.rule.severity == "warn" and finding.outcome in CLOSING
    return MARKS[Outcome.ERRORED if is_warning else finding.outcome]


def _finding_row(finding: Finding) -> tuple[str, ...]:
    return (
        f"{_mark(finding)} {finding.outcome}",
        of_group(finding.metric, finding.group),
        finding.mode,
        interval(finding.delta) if finding.delta else "-",
        limit(finding.rule),
        str(finding.delta.n) if finding.delta else "-",
    )


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
