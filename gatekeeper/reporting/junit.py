"""A run as JUnit XML: one test case per finding, so that a pipeline shows them as it shows tests.

The file is red exactly when the gate is closed. Rules that only warn and waived ones are `skipped`; of the
blocking ones a proven regression is a `failure`, and evidence that is too small or absent is an `error`.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import assert_never

from gatekeeper.domain.verdict import Finding, Outcome, Verdict
from gatekeeper.reporting.figures import interval, limit, title
from gatekeeper.reporting.view import RunView

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold (its section 2.2), such as the escape sequences in an engine's log."""


def render_junit(runs: Sequence[RunView]) -> str:
    """One suite for each change, named after it."""
    root = ET.Element("testsuites")
    root.extend(_suite(run) for run in runs)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(run: RunView) -> ET.Element:
    """A suite. A closed gate that no finding explains gets its own test case."""
    suite = ET.Element("testsuite", name=_clean(f"gatekeeper: {run.name}"))
    for finding in run.findings:
        suite.append(_finding_case(run, finding))
    is_red = suite.find("testcase/failure") is not None or suite.find("testcase/error") is not None
    if run.verdict is not Verdict.PASS and not is_red:
        case = _case(run, "verdict")
        ET.SubElement(case, "error", type=run.word, message=_clean(run.sentence or run.word))
        suite.append(case)
    for counted, tag in (
        ("tests", "testcase"),
        ("failures", "*/failure"),
        ("errors", "*/error"),
        ("skipped", "*/skipped"),
    ):
        suite.set(counted, str(len(suite.findall(tag))))
    ET.SubElement(suite, "system-out").text = _clean(
        "\n".join(filter(None, [run.sentence, *run.notes, run.url]))
    )
    return suite


def _clean(text: str) -> str:
    return NOT_XML.sub("?", text)


def _case(run: RunView, name: str) -> ET.Element:
    classname = ".".join(filter(None, ["gatekeeper", run.model, run.suite]))
    return ET.Element("testcase", classname=_clean(classname), name=_clean(name))


def _finding_case(run: RunView, finding: Finding) -> ET.Element:
    group = "" if finding.group == "all" else f" [{finding.group}]"
    case = _case(run, f"{finding.metric}{group} ({finding.mode})")
    tag = _tag(finding)
    if tag:
        ET.SubElement(case, tag, type=str(finding.outcome), message=_clean(finding.detail)).text = _figures(
            finding
        )
    else:
        ET.SubElement(case, "system-out").text = _figures(finding)
    return case


def _figures(finding: Finding) -> str:
    estimate = interval(finding.delta) if finding.delta else "no estimate"
    return _clean(f"{title(finding.metric)}: {estimate}; limit {limit(finding.rule)}; {finding.rule.reason}")


def _tag(finding: Finding) -> str | None:
    """The element that tells a test runner what became of a rule; None for a plain success."""
    warns = finding.rule.severity == "warn"
    match finding.outcome:
        case Outcome.PASSED:
            return None
        case Outcome.WAIVED:
            return "skipped"
        case Outcome.REGRESSED:
            return "skipped" if warns else "failure"
        case Outcome.INCONCLUSIVE | Outcome.NOT_EXERCISED | Outcome.MISSING | Outcome.ERRORED:
            return "skipped" if warns else "error"
        case _:
            assert_never(finding.outcome)
