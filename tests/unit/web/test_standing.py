"""What stands beside the runs: history, comparison, policies and other margins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from gatekeeper import catalog
from gatekeeper.domain.judge import judge
from gatekeeper.domain.policy import Policy
from gatekeeper.services.comparison import compare
from gatekeeper.storage.queries import PastDelta
from gatekeeper.web.comparison import comparison
from gatekeeper.web.past import past
from gatekeeper.web.rejudging import changed_policy, margin_fields, outcome_lines, rule_lines
from tests.unit.web import samples

POLICY = catalog.get_policy("default")
FAILED = samples.detail(*samples.failing())
PASSED = samples.detail(*samples.passing())


BASELINE: dict[str, Any] = {"reuse": {"prefix_caching": False}}
FP8: dict[str, Any] = BASELINE | {"quantization": {"scheme": "fp8_e4m3"}}
WINDOW = {"policy": "sliding_window", "window": 512}


def delta(
    number: int, engine: str = "vllm 0.32.0", estimate: float = 0.02, candidate: dict[str, Any] = FP8
) -> PastDelta:
    return PastDelta(
        run_id=UUID(int=number), created_at=samples.NOW - timedelta(hours=number), label=f"run {number}",
        baseline=BASELINE, candidate=candidate, engine=engine, estimate=estimate, lower=0.01, upper=0.03,
        finding="Passed", severity="block",
    )  # fmt: skip


def test_a_new_engine_is_marked_where_it_first_appears() -> None:
    shown = past("decode_kl", [delta(1, "vllm 0.33.0"), delta(2, "vllm 0.33.0"), delta(3)], now=samples.NOW)
    assert [(line.number, line.is_new_engine) for line in shown.lines] == [(3, False), (2, True), (1, False)]
    assert shown.chart is not None
    assert [mark.text for mark in shown.chart.events] == ["vllm 0.33.0"]
    assert past("decode_kl", [delta(1)], now=samples.NOW).chart is None


@pytest.mark.parametrize(
    ("candidate", "name"),
    [
        (FP8, "fp8_e4m3"),
        (BASELINE | {"eviction": WINDOW}, "sliding_window(512)"),
        (FP8 | {"eviction": WINDOW}, "fp8_e4m3 + sliding_window(512)"),
        ({"reuse": {"prefix_caching": True}}, "prefix caching"),
    ],
)
def test_a_candidate_of_the_past_is_called_what_the_list_calls_it(
    candidate: dict[str, Any], name: str
) -> None:
    [shown] = past("decode_kl", [delta(1, candidate=candidate)], now=samples.NOW).lines
    assert shown.candidate == name


def test_runs_stand_side_by_side_with_what_makes_them_differ() -> None:
    shown = comparison(compare([FAILED, PASSED]))
    first = shown.rows[0]
    assert (first.label, first.mode) == ("Decode KL nats/token", "cold")
    assert [cell.badge.word for cell in first.cells if cell.badge] == ["Regressed", "Passed"]
    assert shown.warnings == ()
    assert "different models" in compare([FAILED, PASSED.model_copy(update={"model": "other"})]).warnings[0]


def test_runs_show_the_settings_in_which_they_differ() -> None:
    small, large = (
        samples.change("fp8_e5m2", candidate=candidate, deployment={"max_context": length})
        for candidate, length in (
            ({"quantization": {"scheme": "fp8_e5m2"}}, 512),
            ({"reuse": {"prefix_caching": True}}, 1024),
        )
    )
    runs = [
        PASSED.model_copy(update={"plan": samples.plan(change).model_dump(mode="json")})
        for change in (samples.change(), small, large)
    ]
    shown = {setting.name: setting.values for setting in compare(runs).settings}
    assert next(iter(shown)) == "quantization.scheme"
    assert shown["quantization.scheme"] == ("fp8_e4m3", "fp8_e5m2", "none")
    assert shown["reuse.prefix_caching"] == ("off", "off", "on")
    assert shown["deployment.max_context"] == ("not set", "512", "1024")
    assert compare([PASSED, PASSED]).settings == ()


def test_what_only_one_run_measured_is_said_to_be_missing_in_the_other() -> None:
    bare = PASSED.model_copy(update={"deltas": (), "findings": ()})
    assert {row.cells[1].text for row in comparison(compare([FAILED, bare])).rows} == {"not measured"}


def test_a_policy_is_read_beside_another() -> None:
    strict = catalog.get_policy("strict")
    lines = rule_lines(POLICY, strict)
    kl = next(line for line in lines if line.metric == "Decode KL")
    assert (kl.limit, kl.other, kl.is_changed) == ("\u2264 0.03 nats/token", "\u2264 0.01, block", True)
    assert any(line.limit == "no rule" for line in lines)
    assert not any(line.is_changed for line in rule_lines(POLICY, POLICY))


def test_changed_margins_make_another_policy() -> None:
    fields = margin_fields(POLICY, {"limit-0": "0.2"})
    assert fields[0].value == "0.2"
    assert fields[1].value == "0.05"
    changed = Policy.model_validate(changed_policy(POLICY, fields))
    assert changed.rules[0].at_most == 0.2
    assert changed.rules[1:] == POLICY.rules[1:]
    with pytest.raises(ValueError, match="number"):
        Policy.model_validate(changed_policy(POLICY, margin_fields(POLICY, {"limit-0": "much"})))


def test_a_finding_that_changes_with_the_margin_is_marked() -> None:
    plan, arms = samples.failing()
    document = changed_policy(POLICY, margin_fields(POLICY, {"limit-0": "0.2"}))
    again = plan.model_copy(update={"policy": Policy.model_validate(document)})
    lines = outcome_lines(FAILED, samples.detail(again, arms, report=judge(again, arms)))
    changed = [line for line in lines if line.is_changed]
    assert [(line.metric, line.after.word) for line in changed] == [("Decode KL", "Passed")]
