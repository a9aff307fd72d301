"""The sections of a run's page."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gatekeeper.domain.judge import judge
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Noise, Verdict
from gatekeeper.reporting.view import read_run
from gatekeeper.services.views import RunDetail
from gatekeeper.web.sections.answer import Tiles, answer, tiles
from gatekeeper.web.sections.arms import argv_lines, arms_section
from gatekeeper.web.sections.change import change_section
from gatekeeper.web.sections.fidelity import context_curves, fidelity_curves
from gatekeeper.web.sections.findings import findings_section
from gatekeeper.web.sections.latency import latency_panels
from gatekeeper.web.sections.measured import measured_section, noise_figures
from gatekeeper.web.sections.memory import memory_section
from gatekeeper.web.sections.retrieval import heat_maps
from gatekeeper.web.sections.settings import settings_section
from gatekeeper.web.sections.timeline import timeline
from gatekeeper.web.sections.unseen import unseen
from gatekeeper.web.sections.waivers import waivers_section
from tests.unit.web import samples

PLAN = samples.plan()
PASSED = samples.detail(*samples.passing())
FAILED = samples.detail(*samples.failing())
CACHED = samples.detail(*samples.prefix_caching())
UNDECIDED = samples.detail(*samples.inconclusive())
NOT_FINITE = samples.detail(*samples.not_finite())
FAILED_REQUESTS = samples.detail(*samples.failed_requests())
DIED_TWICE = samples.detail(*samples.died_twice())


def actions(run: RunDetail, *, needs_token: bool = False) -> list[tuple[str, bool]]:
    found = answer(run, base_url="http://gate:8800/", needs_token=needs_token).actions
    return [(action.label, action.command is not None) for action in found]


def step_urls(run: RunDetail, *, needs_token: bool = False) -> list[str]:
    return [step.url for step in answer(run, base_url="", needs_token=needs_token).steps]


def measured_tiles(run: RunDetail) -> Tiles:
    found = tiles(run)
    assert found is not None
    return found


# --- the answer ------------------------------------------------------------------------------------------------------


def test_the_sentence_does_not_repeat_the_verdict_word() -> None:
    top = answer(FAILED, base_url="", needs_token=False)
    assert top.badge.word == "FAIL"
    assert [reason.split(" 0.")[0] for reason in top.reasons[:2]] == ["Decode KL", "Decode NLL change"]
    assert top.reasons[2].startswith("Top-1 agreement 77.6%")
    assert top.sentence.startswith("Accuracy change +0.0 points")
    assert top.gate == "Gate closed"
    assert answer(PASSED, base_url="", needs_token=False).gate == "Gate open"


def test_a_passed_run_has_one_sentence_and_no_reasons_against_it() -> None:
    top = answer(PASSED, base_url="", needs_token=False)
    assert top.reasons == ()
    assert top.sentence.startswith("Decode KL 0.")


def test_every_verdict_leads_on() -> None:
    kinds = {
        "failed": FAILED,
        "inconclusive": samples.detail(*samples.inconclusive()),
        "not applied": samples.detail(*samples.not_applied()),
        "refused": samples.detail(*samples.refused()),
        "died": samples.detail(*samples.broken()),
        "waiting": samples.unfinished(RunState.QUEUED),
    }
    first = {
        name: next((step.url for step in answer(run, base_url="", needs_token=False).steps), None)
        for name, run in kinds.items()
    }
    assert first == {
        "failed": f"/runs/{FAILED.run_id}/items",
        "inconclusive": "#findings",
        "not applied": "#settings",
        "refused": "#arms",
        "died": "#logs",
        "waiting": None,
    }


def test_nobody_is_sent_to_waivers_that_the_page_does_not_have() -> None:
    for needs_token in (False, True):
        for run in (FAILED, UNDECIDED, NOT_FINITE, FAILED_REQUESTS, DIED_TWICE, PASSED):
            section = waivers_section(run, (), now=samples.NOW, needs_token=needs_token)
            offered = "#waivers" in step_urls(run, needs_token=needs_token)
            assert section is not None or not offered


def test_margins_and_waivers_are_offered_where_they_can_turn_the_verdict() -> None:
    margins = f"/runs/{FAILED.run_id}/rejudge"
    assert step_urls(FAILED) == [f"/runs/{FAILED.run_id}/items", margins, "#waivers", "/submit"]
    assert step_urls(UNDECIDED) == ["#findings", margins, "#waivers", "/submit"]
    assert step_urls(NOT_FINITE) == [f"/runs/{FAILED.run_id}/items", "/submit"]
    for run in (FAILED_REQUESTS, DIED_TWICE):
        assert run.verdict is Verdict.FAIL
        assert step_urls(run) == ["#arms", "#logs", "/submit"]


def test_values_that_are_no_numbers_cannot_be_waived_from_the_page() -> None:
    assert NOT_FINITE.verdict is Verdict.FAIL
    assert waivers_section(NOT_FINITE, (), now=samples.NOW, needs_token=False) is None


def test_page_and_comment_give_the_same_advice() -> None:
    for run in (PASSED, FAILED, UNDECIDED, NOT_FINITE, FAILED_REQUESTS, DIED_TWICE):
        view = read_run(run.model_dump(mode="json"))
        assert view.meaning is not None
        assert view.meaning.advice == answer(run, base_url="", needs_token=False).advice


def test_only_an_unfinished_run_can_be_cancelled_and_only_one_that_came_to_nothing_run_again() -> None:
    assert actions(samples.unfinished(RunState.RUNNING)) == [("Cancel run", False)]
    assert actions(samples.unfinished(RunState.QUEUED)) == [("Cancel run", False)]
    assert actions(samples.unfinished(RunState.RUNNING, cancel_requested=True)) == []
    assert actions(samples.unfinished(RunState.CANCELLED)) == [("Run again", False)]
    assert actions(samples.detail(*samples.broken())) == [("Run again", False)]
    assert actions(FAILED) == []


def test_with_a_token_the_page_says_how_instead() -> None:
    run = samples.unfinished(RunState.RUNNING)
    (action,) = answer(run, base_url="http://gate:8800/", needs_token=True).actions
    assert action.command is not None
    assert action.command.endswith(f"http://gate:8800/api/v1/runs/{run.run_id}/cancel")


def test_tiles_set_gain_against_cost() -> None:
    shown = measured_tiles(PASSED)
    assert [(tile.label, tile.value, tile.detail) for tile in shown.gain] == [
        ("KV capacity", "2.00×", "46,592 → 93,184 tokens"),
        ("Throughput", "0.97×", "107 → 103.8 tok/s"),
    ]
    assert [tile.badge.word if tile.badge else "" for tile in (*shown.gain, *shown.cost)] == [
        "Gain", "Inconclusive", "Passed", "Passed", "Passed",
    ]  # fmt: skip


def test_a_tile_without_a_figure_says_so() -> None:
    run = FAILED.model_copy(update={"deltas": tuple(d for d in FAILED.deltas if d.metric != "decode_kl")})
    kl = measured_tiles(run).cost[0]
    assert (kl.value, kl.is_measured, kl.badge) == ("not measured", False, None)
    assert tiles(samples.detail(*samples.refused())) is None


def test_a_tile_names_other_modes_beside_the_cold_one() -> None:
    kl = measured_tiles(CACHED).cost[0]
    assert kl.value == "0.0000"
    assert "warm 0.0001" in kl.detail
    capacity = measured_tiles(CACHED).gain[0]
    assert capacity.badge is not None
    assert capacity.badge.word == "No gain"


# --- change, settings ------------------------------------------------------------------------------------------------


def test_the_change_lists_only_what_differs() -> None:
    assert [
        (row.setting, row.baseline, row.candidate)
        for row in change_section(PASSED, PLAN, now=samples.NOW).differences
    ] == [
        ("quantization.scheme", "none", "fp8_e4m3"),
        ("quantization.scales", "not set", "unit"),
    ]
    plan, _ = samples.prefix_caching()
    assert [
        (row.setting, row.baseline, row.candidate)
        for row in change_section(PASSED, plan, now=samples.NOW).differences
    ] == [("reuse.prefix_caching", "off", "on")]


def test_the_facts_name_engine_policy_and_origin() -> None:
    section = change_section(PASSED, PLAN, now=samples.NOW)
    facts = {fact.label: fact.text for fact in section.facts}
    assert facts["Engine"] == "vllm 0.32.0+cpu"
    assert facts["Policy"] == "default, α 0.05"
    assert facts["Ref"] == "serving-config@3f2a91c0"
    assert facts["Took"] == "4 min 05 s"
    assert "Attempt" not in facts


def test_mismatches_come_first_and_are_counted() -> None:
    section = settings_section(samples.detail(*samples.not_applied()))
    assert [arm.arm for arm in section.arms] == ["candidate", "baseline"]
    candidate = section.arms[0]
    assert section.mismatches == sum(line.is_mismatch for line in candidate.lines) == 3
    first = candidate.lines[0]
    assert (first.setting, first.requested, first.effective) == ("cache_dtype", "fp8_e4m3", "auto")
    assert first.badge.word == "differs"
    silent = [line for line in candidate.lines if line.effective == "not reported"]
    assert silent
    assert {line.badge.word for line in silent} == {"not verified"}


# --- findings, figures, curves ---------------------------------------------------------------------------------------


def test_what_decided_comes_first() -> None:
    section = findings_section(FAILED, PLAN.policy)
    assert [row.badge.word for row in section.rows[:3]] == ["Regressed"] * 3
    assert section.tally == "3 regressed, 1 inconclusive, 3 passed, 1 does not apply"
    assert section.confidence == "95%"
    assert section.rules == ()


def test_a_rule_that_does_not_apply_has_a_row_that_says_so() -> None:
    rows = findings_section(FAILED, PLAN.policy).rows
    assert len(rows) == len(PLAN.policy.rules)
    idle = rows[-1]
    assert (idle.metric, idle.mode, idle.badge.word) == ("KL to its own cold cache", "", "Does not apply")
    assert "no prefix is reused" in idle.detail
    cached = findings_section(CACHED, PLAN.policy)
    assert "does not apply" not in cached.tally


def test_a_finding_shows_estimate_limit_and_reason() -> None:
    rows = {row.metric: row for row in findings_section(FAILED, PLAN.policy).rows}
    kl, speed = rows["Decode KL"], rows["Throughput"]
    assert kl.limit.endswith("nats/token")
    assert kl.reason == next(rule.reason for rule in PLAN.policy.rules if rule.metric == "decode_kl")
    assert kl.sample == "16 documents"
    assert kl.plot is not None
    assert kl.plot.limit.at < kl.plot.low < kl.plot.dot < kl.plot.high
    assert (speed.severity, speed.is_blocking) == ("only warns", False)


def test_a_finding_without_a_delta_has_no_plot_and_no_number() -> None:
    run = FAILED.model_copy(
        update={"findings": tuple(found.model_copy(update={"delta": None}) for found in FAILED.findings)}
    )
    for row in findings_section(run, PLAN.policy).rows:
        assert (row.estimate, row.bounds, row.plot) == ("not measured", "", None)


def test_before_the_end_the_rules_are_shown() -> None:
    section = findings_section(samples.unfinished(RunState.QUEUED), PLAN.policy)
    assert section.rows == ()
    assert [rule.metric for rule in section.rules] == [
        "Decode KL", "Decode NLL change", "Top-1 agreement", "KL to its own cold cache", "Accuracy change",
        "Right-choice probability",
        "Retrieved-answer probability",
        "Throughput",
    ]  # fmt: skip


def test_every_delta_is_listed_with_tasks_under_their_metric() -> None:
    section = measured_section(FAILED, PLAN)
    assert section is not None
    assert len(section.lines) == len(FAILED.deltas)
    names = [line.metric for line in section.lines]
    start = names.index("Accuracy change")
    assert names[start + 1 : start + 5] == sorted(samples.TASKS)
    assert all(line.is_part for line in section.lines[start + 1 : start + 5])
    assert section.lines[start].flips == "4 lost, 4 gained"
    latencies = ("TTFT p90", "TTFT p99", "Inter-token p90", "Inter-token p99")
    assert section.lacking == ("Goodput", *latencies, *(f"End-to-end p{p}" for p in (50, 90, 99)))
    assert measured_section(samples.unfinished(RunState.RUNNING), PLAN) is None


def test_an_unmeasured_noise_floor_is_not_a_quiet_one() -> None:
    plan, arms = samples.passing()
    del arms["control"]
    section = measured_section(samples.detail(plan, arms, report=judge(plan, arms)), plan)
    assert section is not None
    assert not section.is_noise_measured
    assert {figure.text for figure in noise_figures(Noise())} == {"not measured"}


def test_curves_follow_the_decode_and_are_tables_too() -> None:
    curves = fidelity_curves(FAILED, PLAN.policy)
    assert [curve.title for curve in curves] == ["Decode KL", "Top-1 agreement", "Decode NLL change"]
    kl = curves[0]
    assert kl.columns == ("candidate", "second baseline launch")
    assert kl.rows[0].place == "1 to 8"
    assert kl.rows[0].values[1].mean == "0.0000"
    assert len(kl.rows) == len(kl.chart.lines[0].dots) == 8
    assert kl.chart.limit is not None
    assert fidelity_curves(samples.unfinished(RunState.RUNNING), PLAN.policy) == ()


def test_each_mode_has_its_own_curve() -> None:
    kl = fidelity_curves(CACHED, PLAN.policy)[0]
    assert kl.columns == ("candidate, cold", "candidate, warm", "second baseline launch")
    assert [line.style for line in kl.chart.lines] == ["first", "second", "noise"]


def test_several_lengths_of_context_have_a_curve_and_one_has_none() -> None:
    assert context_curves(FAILED, PLAN.policy) == ()
    kl, agreement, nll = context_curves(samples.detail(*samples.past_context()), PLAN.policy)
    assert [curve.title for curve in (kl, agreement, nll)] == [
        "Decode KL",
        "Top-1 agreement",
        "Decode NLL change",
    ]
    assert kl.columns == ("candidate", "second baseline launch")
    assert [row.place for row in kl.rows] == ["128", "1,536"]
    unharmed, damaged = (float(row.values[0].mean) for row in kl.rows)
    assert unharmed == 0 < damaged
    assert {row.values[1].mean for row in kl.rows} == {"0.0000"}
    assert (kl.chart.x_title, len(kl.chart.lines[0].dots)) == ("tokens of context", 2)


def test_other_states_of_the_engine_are_not_drawn() -> None:
    arms = {
        role: replace(arm, traces=(*arm.traces, *samples.traces(0.1, mode="prefill")[:2]))
        for role, arm in samples.passing()[1].items()
    }
    kl = fidelity_curves(samples.detail(PLAN, arms), PLAN.policy)[0]
    assert kl.columns == ("candidate", "second baseline launch")


def test_the_heat_map_counts_by_depth_and_length() -> None:
    whole, *families = heat_maps(samples.items())
    assert whole.lengths == ("256", "512", "1,024")
    first, *_, total = whole.rows
    assert [(cell.text, cell.change, cell.is_worse) for cell in first.cells] == [
        ("2/2", "", False), ("0/2", "\N{MINUS SIGN}2", True), ("0/2", "\N{MINUS SIGN}2", True),
    ]  # fmt: skip
    assert [cell.text for cell in total.cells] == ["12/12", "6/12", "6/12"]
    assert [heat.family for heat in families] == ["lookup", "needle"]
    assert heat_maps(()) == ()


def test_latencies_stand_beside_each_other_by_percentile() -> None:
    panels = latency_panels(samples.items())
    assert [panel.title for panel in panels] == ["Time to first token", "Between tokens", "End to end"]
    row = panels[2].rows[2]
    assert (row.percentile, row.baseline, row.candidate, row.ratio) == (
        "p99",
        "7,310 ms",
        "6,579 ms",
        "0.90×",
    )
    lanes = panels[2].strip.lanes
    assert [lane.label for lane in lanes[-2:]] == ["p99 baseline", "p99 candidate"]
    assert lanes[-1].middle < lanes[-2].middle


def test_in_turns_the_companion_is_the_baseline() -> None:
    rounds = [item for item in samples.items() if item.metric == "e2e_p50_ms"]
    companions = [
        item.model_copy(update={"suite": "companion", "baseline": None, "candidate": 100.0})
        for item in rounds
    ]
    (panel,) = latency_panels([*rounds, *companions])
    assert panel.rows[0].baseline == "100 ms"


def test_memory_is_compared_under_the_declared_load() -> None:
    section = memory_section(PASSED, PLAN)
    assert section is not None
    baseline, candidate = section.bars
    assert (baseline.size, candidate.size) == ("1.00 GiB", "1.00 GiB")
    assert candidate.used == pytest.approx(baseline.used / 2, rel=0.01)
    assert memory_section(samples.unfinished(RunState.QUEUED), PLAN) is None


def test_what_was_not_exercised_is_listed_with_its_reason() -> None:
    entries = {entry.what: entry.why for entry in unseen(PASSED, PLAN, lacking=("Goodput",))}
    assert entries["Metrics without a figure"] == "Goodput"
    assert entries["candidate: stored_type quantized"] == "the engine did not say"


# --- arms, logs, time ------------------------------------------------------------------------------------------------


def test_a_command_line_has_a_flag_and_its_values_per_line() -> None:
    argv = ["python", "-m", "server", "--model", "a b", "--eager", "--stop", "x", "y"]
    assert argv_lines(argv) == ("python -m server", "--model 'a b'", "--eager", "--stop x y")


def test_the_candidates_own_flags_are_marked() -> None:
    section = arms_section(PASSED, PLAN, samples.artifacts(), now=samples.NOW)
    candidate = next(panel for panel in section.panels if panel.role == "candidate")
    assert [line.text for line in candidate.argv if line.is_own] == ["--kv-cache-dtype fp8_e4m3"]
    assert dict(candidate.pool)["KV pool"] == "93,184 tokens"
    assert dict(candidate.pool)["Bytes per token"] == "11,523"
    assert candidate.took == "2 min 00 s"
    assert section.planned == ()


def test_an_arm_of_an_earlier_run_links_there() -> None:
    arms = tuple(
        arm.model_copy(update={"reused": arm.role != "candidate", "run_id": samples.EARLIER_RUN})
        for arm in PASSED.arms
    )
    section = arms_section(PASSED.model_copy(update={"arms": arms}), PLAN, (), now=samples.NOW)
    assert [panel.reused_from for panel in section.panels] == [f"/runs/{samples.EARLIER_RUN}"] * 2 + [None]
    assert [panel.badge.word for panel in section.panels] == ["reused", "reused", "measured"]


def test_before_the_launch_the_flags_are_shown() -> None:
    section = arms_section(samples.unfinished(RunState.QUEUED), PLAN, (), now=samples.NOW)
    planned = dict(section.planned)
    assert list(planned) == ["baseline", "candidate"]
    assert [line.text for line in planned["candidate"] if line.is_own] == ["--kv-cache-dtype fp8_e4m3"]


def test_an_arm_that_failed_says_why() -> None:
    run = samples.detail(*samples.refused())
    panel = arms_section(run, PLAN, (), now=samples.NOW).panels[-1]
    assert (panel.badge.word, panel.engine) == ("refused", "did not start")
    assert "needs AVX-512" in panel.cause


def test_an_arm_that_runs_counts_up_to_now() -> None:
    arms = tuple(
        arm.model_copy(update={"complete": False, "finished_at": None, "engine": None})
        for arm in PASSED.arms[:1]
    )
    run = samples.unfinished(RunState.RUNNING, arms=arms)
    panel = arms_section(run, PLAN, (), now=arms[0].started_at + timedelta(seconds=75)).panels[0]
    assert (panel.badge.word, panel.took, panel.engine) == ("running", "1 min 15 s", "starting")


def test_what_a_counter_says_is_shown_with_what_it_should_say() -> None:
    lines = arms_section(CACHED, PLAN, (), now=samples.NOW).exercises
    warm = next(line for line in lines if line.mode == "warm")
    assert (warm.moved, warm.expected, warm.badge.word) == ("8,192", "must move", "as claimed")


def test_logs_link_to_the_api() -> None:
    logs = arms_section(PASSED, PLAN, samples.artifacts(), now=samples.NOW).logs
    assert logs[2].url == f"/api/v1/runs/{samples.RUN_ID}/artifacts/1/candidate/engine.log"
    assert [log.is_cut for log in logs] == [False, True, False]


def test_the_timeline_has_one_stage_per_arm_and_probe() -> None:
    shown = timeline(samples.events(), now=samples.NOW)
    assert shown is not None
    assert [(stage.arm, stage.name) for stage in shown.stages[:4]] == [
        ("", "wait for a worker"), ("", "prepare"), ("baseline", "launch the engine"), ("baseline", "capacity"),
    ]  # fmt: skip
    assert len(shown.stages) == 2 + 3 * 5
    assert shown.stages[0].took == "4.0 s"
    assert shown.total == "4 min 59 s"
    assert not shown.has_attempts
    last = shown.stages[-1]
    assert last.x + last.width == pytest.approx(1000, abs=0.2)


def test_an_unfinished_stage_lasts_until_now() -> None:
    events = samples.events(finished=False)[:3]
    shown = timeline(events, now=events[-1].at + timedelta(seconds=50))
    assert shown is not None
    assert (shown.stages[-1].name, shown.stages[-1].took) == ("launch the engine", "50 s")
    assert timeline((), now=samples.NOW) is None


def test_a_second_attempt_is_told_apart() -> None:
    events = samples.events()
    again = [
        events[0].model_copy(
            update={
                "payload": {"state": "queued", "attempt": 2},
                "seq": 900,
                "at": events[-1].at + timedelta(minutes=1),
            }
        ),
    ]
    shown = timeline((*events, *again), now=again[0].at + timedelta(seconds=20))
    assert shown is not None
    assert shown.has_attempts
    assert (shown.stages[-1].attempt, shown.stages[-1].took) == (2, "20 s")
    assert (shown.stages[-2].name, shown.stages[-2].took) == (
        "performance",
        "15 s",
    )  # idle time is no stage's
