"""Markdown, JUnit and JSON."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from gatekeeper.domain.sentence import summary
from gatekeeper.domain.verdict import Finding, Outcome, Verdict
from gatekeeper.reporting import RENDERERS
from gatekeeper.reporting.markdown import MARKS
from gatekeeper.reporting.view import UnknownFormat
from tests.unit.reporting.samples import ACCURACY, CAPACITY, ENGINE, KL, THROUGHPUT, document, finding

WAIVER = {
    "id": 1, "metric": "accuracy", "owner": "Ada", "reason": "room first",
    "granted_at": "2026-11-30T12:00:00Z", "expires_at": "2026-12-24T12:00:00Z",
}  # fmt: skip
CLOSED = [verdict for verdict in Verdict if verdict is not Verdict.PASS]


def suite(run: dict[str, Any]) -> ET.Element:
    found = ET.fromstring(RENDERERS["junit"]([run])).find("testsuite")
    assert found is not None
    return found


def test_json_is_the_document_itself() -> None:
    run = document(unknown_to_this_version={"ü": 1})
    rendered = RENDERERS["json"]([run])
    assert json.loads(rendered) == run
    assert "ü" in rendered


def test_junit_has_one_case_per_finding() -> None:
    found = suite(document(Verdict.PASS))
    names = [case.get("name") for case in found.findall("testcase")]
    assert names == ["decode_kl (cold)", "accuracy (cold)", "throughput_ratio (cold)"]
    assert (found.get("tests"), found.get("failures"), found.get("errors"), found.get("skipped")) == (
        "3",
        "0",
        "0",
        "1",
    )


def test_junit_is_red_for_a_regression() -> None:
    found = suite(document(Verdict.FAIL))
    failure = found.find("testcase[@name='decode_kl (cold)']/failure")
    assert failure is not None
    assert "0.0271 [0.0243, 0.0312]; limit <= 0.05" in (failure.text or "")


@pytest.mark.parametrize("verdict", CLOSED)
def test_junit_is_red_whenever_the_gate_is_closed(verdict: Verdict) -> None:
    found = suite(document(verdict))
    assert int(found.get("failures", 0)) + int(found.get("errors", 0)) == 1


@pytest.mark.parametrize(
    ("outcome", "tag"),
    [
        (Outcome.REGRESSED, "failure"),
        (Outcome.INCONCLUSIVE, "error"),
        (Outcome.MISSING, "error"),
        (Outcome.NOT_EXERCISED, "error"),
        (Outcome.ERRORED, "error"),
        (Outcome.WAIVED, "skipped"),
    ],
)
def test_junit_tells_outcomes_apart(outcome: Outcome, tag: str) -> None:
    run = document(Verdict.FAIL, findings=[finding("decode_kl", outcome).model_dump(mode="json")])
    assert suite(run).find(f"testcase/{tag}[@type='{outcome}']") is not None


@pytest.mark.parametrize("outcome", [Outcome.REGRESSED, Outcome.MISSING])
def test_junit_skips_what_only_warns(outcome: Outcome) -> None:
    run = document(Verdict.PASS, findings=[finding("throughput_ratio", outcome).model_dump(mode="json")])
    assert suite(run).find("testcase/skipped") is not None


def test_junit_survives_what_xml_cannot_hold() -> None:
    run = document(Verdict.ERROR, sentence="ERROR: \x1b[31m\x00]]> <died> & \ud800")
    message = suite(run).find("testcase/error")
    assert message is not None
    assert message.get("message") == "ERROR: ?[31m?]]> <died> & ?"


@pytest.mark.parametrize("verdict", list(Verdict))
def test_markdown_begins_with_verdict_and_name(verdict: Verdict) -> None:
    heading = RENDERERS["markdown"]([document(verdict)]).partition("\n")[0]
    assert heading == f"### {MARKS[verdict]} {verdict}: fp8\\_e4m3"


def test_markdown_says_what_to_do_what_was_changed_and_why() -> None:
    requested = {
        "baseline": {"quantization": {"scheme": "none"}, "reuse": {"prefix_caching": False}},
        "candidate": {"quantization": {"scheme": "fp8_e5m2"}, "reuse": {"prefix_caching": False}},
    }
    lost = finding("decode_kl", Outcome.REGRESSED, of=KL)
    sentence = summary(Verdict.FAIL, [lost], [KL, CAPACITY], ())
    rendered = RENDERERS["markdown"]([
        document(
            Verdict.FAIL, findings=[lost.model_dump(mode="json")], sentence=sentence, requested=requested,
            url="http://gate/runs/r-1",
        )
    ])  # fmt: skip
    _, what, changed, reason, besides, *_ = rendered.split("\n\n")
    assert what.startswith("**Gate closed.** At least one rule proved a regression.")
    assert what.endswith("[The evidence](http://gate/runs/r-1), [item by item](http://gate/runs/r-1/items).")
    assert (
        changed == "The change to smollm2-135m: quantization.scheme none \N{RIGHTWARDS ARROW} **fp8\\_e5m2**"
    )
    assert reason == "- Decode KL 0.027 nats/token (95% bounds 0.024 to 0.031) exceeds 0.050 nats/token"
    assert besides == "KV capacity 2.00x."


def advice_of(verdict: Verdict, **more: Any) -> str:
    return RENDERERS["markdown"]([document(verdict, **more)]).split("\n\n")[1]


def test_markdown_of_a_pass_on_waivers_does_not_say_that_every_rule_holds() -> None:
    assert "or is waived, until 2026-12-24" in advice_of(Verdict.PASS, waivers=[WAIVER])
    assert "waived" not in advice_of(Verdict.PASS)


def test_markdown_of_the_reference_engine_offers_no_rollout() -> None:
    engine = ENGINE.model_dump() | {"name": "reference"}
    said = advice_of(Verdict.PASS, engine=engine)
    assert "Roll it out" not in said
    assert "promote" not in said
    assert "`gatekeeper promote`" in advice_of(Verdict.PASS)


def test_markdown_of_a_candidate_that_broke_down_names_no_regression() -> None:
    assert "proved a regression" not in advice_of(Verdict.FAIL, findings=[])


def test_markdown_of_an_advice_cannot_be_broken_out_of() -> None:
    open_task = finding("accuracy", Outcome.INCONCLUSIVE, of=ACCURACY)
    named = open_task.model_copy(update={"group": "a_b_ <script> `@all`"}).model_dump(mode="json")
    said = advice_of(Verdict.INCONCLUSIVE, findings=[named])
    assert "a\\_b\\_ \\<script\\> '@&#8203;all'" in said


def row_of(found: Finding, verdict: Verdict = Verdict.PASS) -> str:
    rendered = RENDERERS["markdown"]([document(verdict, findings=[found.model_dump(mode="json")])])
    return next(line for line in rendered.splitlines() if f" {found.outcome} |" in line)


def test_markdown_leaves_a_detail_out_only_where_the_reasons_have_it() -> None:
    detail = "no finite value for 3 items"
    assert detail in row_of(finding("throughput_ratio", Outcome.REGRESSED, detail=detail))
    assert detail in row_of(finding("throughput_ratio", Outcome.REGRESSED, detail=detail, of=THROUGHPUT))
    assert detail in row_of(finding("decode_kl", Outcome.REGRESSED, detail=detail), Verdict.FAIL)
    assert detail not in row_of(finding("decode_kl", Outcome.REGRESSED, detail=detail, of=KL), Verdict.FAIL)


@pytest.mark.parametrize("outcome", [Outcome.REGRESSED, Outcome.MISSING, Outcome.NOT_EXERCISED])
def test_markdown_marks_a_rule_that_only_warns_as_a_warning(outcome: Outcome) -> None:
    assert row_of(finding("throughput_ratio", outcome)).startswith(f"| \N{WARNING SIGN} {outcome}")
    assert row_of(finding("decode_kl", outcome), Verdict.FAIL).startswith(f"| {MARKS[outcome]} {outcome}")


def test_markdown_folds_what_passed_away_and_shows_the_rest() -> None:
    shown, _, folded = RENDERERS["markdown"]([document(Verdict.FAIL)]).partition("<details>")
    assert "Regressed" in shown
    assert "Inconclusive" in shown
    assert "Passed" not in shown
    assert "1 rule passed</summary>" in folded


def test_markdown_cannot_be_broken_out_of() -> None:
    evil = "a | b\n<script>alert(1)</script> [x](http://e) `c` @everyone"
    run = document(
        Verdict.FAIL,
        sentence=evil,
        findings=[finding("decode_kl", Outcome.ERRORED, detail=evil).model_dump()],
    )
    row = next(line for line in RENDERERS["markdown"]([run]).splitlines() if "Errored" in line)
    assert row.replace("\\|", "").count("|") == 8
    assert "<script" not in row.replace("\\<", "")
    assert "@everyone" not in row
    assert "\\[x\\](http" in row


def test_markdown_links_to_the_run_and_counts_what_differs() -> None:
    rendered = RENDERERS["markdown"]([document(Verdict.INVALID, url="http://gate/runs/r-1")])
    assert "[r-1](http://gate/runs/r-1)" in rendered
    assert "(1 differ)" in rendered


@pytest.mark.parametrize("format_name", ["text", "markdown", "junit"])
def test_an_answer_of_another_version_is_said_to_be_one(format_name: str) -> None:
    with pytest.raises(UnknownFormat, match=r"findings\.0.*json"):
        RENDERERS[format_name]([document(findings=[{"outcome": "Splendid"}])])
