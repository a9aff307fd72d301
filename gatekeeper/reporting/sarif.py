"""Runs as SARIF 2.1.0 (OASIS), so that code hosts show a closed gate at the manifest that caused it.

A result for every rule that did not pass: `error` where it closes the gate, `warning` where it only warns, and a
suppressed one for a waiver. A closed gate that no rule explains gets a result of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from gatekeeper.domain.sentence import demand
from gatekeeper.domain.verdict import Finding, Outcome, Verdict
from gatekeeper.reporting.figures import of_group
from gatekeeper.reporting.text import one_line
from gatekeeper.reporting.view import RunView

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
VERDICT_RULE: Final = "verdict"

Json = dict[str, Any]


def render_sarif(runs: Sequence[RunView]) -> str:
    """One SARIF run for each change."""
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(run) for run in runs]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _run(run: RunView) -> Json:
    shown = [finding for finding in run.findings if finding.outcome is not Outcome.PASSED]
    results = [_result(run, finding) for finding in shown]
    if run.verdict is not Verdict.PASS and not any(result["level"] == "error" for result in results):
        results.insert(0, _bare_result(run))
    driver: Json = {"name": "gatekeeper", "rules": _rules(shown)}
    automation = "/".join(filter(None, ["gatekeeper", run.model, run.name]))
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"{automation}/"},
        "results": results,
        "properties": {"verdict": run.word, "sentence": run.sentence, "run_id": run.run_id, "url": run.url},
    }


def _rules(findings: Sequence[Finding]) -> list[Json]:
    rules = {_rule_id(finding): finding for finding in findings}
    described = [
        {
            "id": name,
            "shortDescription": {"text": of_group(finding.metric, finding.group)},
            "fullDescription": {"text": one_line(demand(finding.rule))},
            "help": {"text": one_line(finding.rule.reason)},
        }
        for name, finding in rules.items()
    ]
    verdict = {"id": VERDICT_RULE, "shortDescription": {"text": "Only PASS opens the gate."}}
    return [verdict, *described]


def _rule_id(finding: Finding) -> str:
    group = "" if finding.group == "all" else f"/{finding.group}"
    return f"{finding.metric}{group}/{finding.mode}"


def _result(run: RunView, finding: Finding) -> Json:
    title = of_group(finding.metric, finding.group)
    text = f"{run.name}: {title} ({finding.mode}) {finding.outcome}: {finding.detail}"
    result = _located(run, _rule_id(finding), _level(finding), text)
    if finding.outcome is Outcome.WAIVED:
        result["suppressions"] = [{"kind": "external", "justification": one_line(finding.detail)}]
    return result


def _level(finding: Finding) -> str:
    if finding.outcome is Outcome.WAIVED:
        return "note"
    return "warning" if finding.rule.severity == "warn" else "error"


def _bare_result(run: RunView) -> Json:
    return _located(run, VERDICT_RULE, "error", f"{run.name}: {run.sentence or run.word}")


def _located(run: RunView, rule: str, level: str, text: str) -> Json:
    result: Json = {"ruleId": rule, "level": level, "message": {"text": one_line(text)}}
    path = (run.change.get("ref") or {}).get("path")
    if path:
        place = {"artifactLocation": {"uri": path}, "region": {"startLine": 1}}
        result["locations"] = [{"physicalLocation": place}]
    result["partialFingerprints"] = {"gatekeeper/v1": f"{run.model}:{run.name}:{rule}"}
    return result
