"""Two lm-eval outputs against each other: what is judged, what is refused, what is only listed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.catalog import get_policy
from gatekeeper.domain.errors import InvalidInput, UnreadableInput
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.verdict import Outcome, Verdict
from gatekeeper.importing.comparison import Comparison, compare
from gatekeeper.importing.outputs import Output, read_output
from tests.unit.importing.logs import BF16, FP8, GENERATED, answers, copied, sample, write

ACCURACY = {"metric": "accuracy", "max_drop": 0.05, "reason": "r"}
RIGHT = [number % 3 != 0 for number in range(300)]


def policy(*rules: dict[str, Any]) -> Policy:
    return Policy.model_validate({"name": "p", "rules": rules or [ACCURACY]})


def outputs(*folders: Path, tasks: Sequence[str] = ()) -> dict[Role, Output]:
    roles: tuple[Role, ...] = ("baseline", "candidate", "control")
    return {
        role: read_output(path, field=role, tasks=tasks) for role, path in zip(roles, folders, strict=False)
    }


def compared(*folders: Path, by: Policy | None = None, **more: Any) -> Comparison:
    return compare(outputs(*folders), by or policy(), **more)


def worse(by: int) -> list[bool]:
    """The answers with `by` of the right ones turned wrong."""
    turned = [number for number, right in enumerate(RIGHT) if right][:by]
    return [right and number not in turned for number, right in enumerate(RIGHT)]


def refused(*folders: Path, **more: Any) -> str:
    with pytest.raises(InvalidInput) as refusal:
        compared(*folders, **more)
    return "\n".join(str(problem) for problem in refusal.value.problems)


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return write(tmp_path / "baseline", "t", answers(RIGHT))


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "verdict"), [(0, Verdict.PASS), (9, Verdict.FAIL), (60, Verdict.FAIL), (4, Verdict.PASS)]
)
def test_the_verdict_is_that_of_any_other_accuracy_data(
    baseline: Path, tmp_path: Path, lost: int, verdict: Verdict
) -> None:
    candidate = write(tmp_path / "candidate", "t", answers(worse(lost)))
    found = compared(baseline, candidate)
    assert found.report.verdict is verdict
    (finding,) = found.report.findings
    assert finding.delta is not None
    assert (finding.delta.n, finding.delta.lost, finding.delta.gained) == (300, lost, 0)


def test_few_items_are_inconclusive() -> None:
    found = compared(BF16, FP8)
    assert found.report.verdict is Verdict.INCONCLUSIVE
    assert "more items would decide" in found.report.sentence
    assert found.outputs["candidate"].model == "m"


def test_the_order_of_the_lines_does_not_matter(baseline: Path, tmp_path: Path) -> None:
    answered = answers(worse(7))
    first = write(tmp_path / "first", "t", answered)
    second = write(tmp_path / "second", "t", answered[::-1])
    assert compared(baseline, first).report.deltas == compared(baseline, second).report.deltas


def test_the_probability_of_the_right_choice_is_judged_where_there_is_one(baseline: Path) -> None:
    rule = {"metric": "choice_probability", "max_drop": 0.2, "reason": "r"}
    found = compared(BF16, FP8, by=policy(rule))
    (finding,) = found.report.findings
    assert finding.delta is not None
    assert (found.report.verdict, finding.delta.n) == (Verdict.PASS, 16)
    assert compared(baseline, baseline, by=policy(rule, ACCURACY)).not_applicable == ("choice_probability",)


def test_a_rule_on_a_task_that_the_outputs_lack_is_not_answered(baseline: Path) -> None:
    found = compared(baseline, baseline, by=policy(ACCURACY | {"group": "gsm8k"}))
    assert found.report.verdict is Verdict.INVALID
    assert compared(baseline, baseline, by=policy(ACCURACY | {"group": "t"})).report.verdict is Verdict.PASS


def test_a_control_shows_the_noise(baseline: Path, tmp_path: Path) -> None:
    control = write(tmp_path / "control", "t", answers(worse(3)))
    assert compared(baseline, baseline, control).report.noise.accuracy_flip_rate == pytest.approx(0.01)
    assert compared(baseline, baseline).report.noise.accuracy_flip_rate is None


def test_an_answer_that_is_no_number_is_a_failure_of_the_candidate_alone(
    baseline: Path, tmp_path: Path
) -> None:
    broken = answers(RIGHT)
    broken[7]["exact_match"] = math.nan
    candidate = write(tmp_path / "candidate", "t", broken)
    assert compared(baseline, candidate).report.verdict is Verdict.FAIL
    assert compared(candidate, candidate).report.verdict is Verdict.INVALID


def test_a_report_says_nothing_of_engines_settings_and_gains(baseline: Path) -> None:
    document = compared(baseline, baseline).document
    assert (document["run_id"], document["engine"], document["requested"], document["settings"]) == (
        None,
        None,
        {},
        [],
    )
    assert not any("gain" in note for note in document["notes"])
    tasks = document["outputs"]["baseline"]["tasks"]
    assert tasks["t"]["items"] == 300
    assert (tasks["t"]["metric"], tasks["t"]["version"], tasks["t"]["num_fewshot"]) == ("exact_match", 1.0, 0)


# --- rules -----------------------------------------------------------------------------------------------------------


def test_rules_on_what_lm_eval_cannot_measure_are_listed_and_do_not_count(baseline: Path) -> None:
    found = compared(baseline, baseline, by=get_policy("default"))
    assert found.report.verdict is Verdict.PASS
    assert "decode_kl" in found.not_applicable
    assert "throughput_ratio" in found.not_applicable
    assert {finding.metric for finding in found.report.findings} == {"accuracy"}
    assert any(note.startswith("Not applicable") and "decode KL" in note for note in found.report.notes)


def test_a_policy_without_a_blocking_rule_that_applies_is_refused(baseline: Path) -> None:
    only_kl = policy({"metric": "decode_kl", "at_most": 0.05, "reason": "r"}, ACCURACY | {"severity": "warn"})
    assert "policy: no blocking rule of p speaks of what these results hold: accuracy" in refused(
        baseline, baseline, by=only_kl
    )


def test_results_that_hold_nothing_to_judge_are_refused_saying_what_they_hold(tmp_path: Path) -> None:
    output = write(tmp_path, "t", [sample(number, f1=number / 10) for number in range(5)])
    said = refused(output, output)
    assert "nothing that can be judged (f1 of t: it is not right or wrong per item" in said


# --- what is judged --------------------------------------------------------------------------------------------------


def test_one_metric_under_one_filter_speaks_for_a_task_and_the_rest_is_shown_or_listed() -> None:
    found = compared(GENERATED, GENERATED)
    assert found.chosen.judged["demo_sums"].label == "exact_match,strict-match"
    assert [series.label for series in found.chosen.shown] == ["exact_match,flexible-extract"]
    assert {entry.metric.partition(",")[0] for entry in found.chosen.not_judged} == {"overlap", "bleu"}
    (finding,) = found.report.findings
    assert finding.delta is not None
    assert finding.delta.n == 6
    assert {delta.group for delta in found.report.deltas} >= {"all", "demo_sums exact_match,flexible-extract"}


def test_another_metric_or_filter_can_be_asked_for(tmp_path: Path) -> None:
    output = write(tmp_path, "t", answers(RIGHT, "acc", acc_norm=1.0))
    by_norm = compared(output, output, preferred=["acc_norm"])
    assert by_norm.chosen.judged["t"].label == "acc_norm"
    by_filter = compared(GENERATED, GENERATED, preferred=["exact_match,flexible-extract"])
    assert by_filter.chosen.judged["demo_sums"].label == "exact_match,flexible-extract"


def test_a_metric_that_no_task_has_is_refused(baseline: Path) -> None:
    assert "metric: no task has a right-or-wrong metric 'bleu' (allowed: exact_match)" in refused(
        baseline, baseline, preferred=["bleu"]
    )


@pytest.mark.parametrize(("higher", "verdict"), [(True, Verdict.FAIL), (False, Verdict.PASS)])
def test_a_metric_counts_in_the_direction_that_the_results_file_gives(
    tmp_path: Path, higher: bool, verdict: Verdict
) -> None:
    results = {"higher_is_better": {"t": {"odd": higher}}}
    first = write(tmp_path / "first", "t", answers(RIGHT, "odd"), results=results)
    second = write(tmp_path / "second", "t", answers(worse(60), "odd"), results=results)
    assert compared(first, second).report.verdict is verdict


def test_a_metric_of_unknown_direction_is_not_judged(tmp_path: Path) -> None:
    output = write(tmp_path, "t", answers(RIGHT, "odd", acc=1.0), results={})
    (entry,) = compared(output, output).chosen.not_judged
    assert (entry.metric, entry.reason) == ("odd", "lm-eval does not say whether higher is better")


def test_tasks_are_pooled_and_shown_one_by_one(tmp_path: Path) -> None:
    write(tmp_path, "t", answers(RIGHT[:100]))
    write(tmp_path, "u", answers(RIGHT[:50], "acc"), stamp="2026-11-30T12-00-00.000002")
    found = compared(tmp_path, tmp_path)
    groups = {delta.group: delta.n for delta in found.report.deltas if delta.metric == "accuracy"}
    assert groups == {"all": 150, "t": 100, "u": 50}


def test_equal_documents_of_a_task_are_items_of_their_own(tmp_path: Path) -> None:
    twins = [sample(number // 2, acc=1.0) for number in range(10)]
    output = write(tmp_path, "t", twins)
    (finding,) = compared(output, output).report.findings
    assert finding.delta is not None
    assert finding.delta.n == 10


# --- pairing ---------------------------------------------------------------------------------------------------------


def test_other_prompts_for_the_same_items_are_refused_by_count(tmp_path: Path) -> None:
    def other_prompt(document: dict[str, Any]) -> None:
        if document["doc_id"] % 2:
            document["prompt_hash"] = "0" * 64

    changed = copied(FP8, tmp_path / "changed", change=other_prompt)
    said = refused(BF16, changed)
    assert "candidate: gk_agreement: 4 of 8 items have other prompts (prompt_hash)" in said


@pytest.mark.parametrize(
    ("results", "named"),
    [
        ({"n-shot": {"t": 5}}, "candidate: t: num_fewshot is 5 (allowed: 0, as in the baseline)"),
        ({"versions": {"t": 2.0}}, "t: version is 2.0 (allowed: 1.0"),
        ({"chat_template_sha": "abc"}, "t: chat_template_sha is 'abc' (allowed: None"),
        ({"configs": {"t": {"generation_kwargs": {"until": ["."]}}}}, "t: generation_kwargs is"),
    ],
)
def test_tasks_that_were_run_in_another_way_are_refused_saying_how(
    baseline: Path, tmp_path: Path, results: dict[str, Any], named: str
) -> None:
    assert named in refused(baseline, write(tmp_path / "other", "t", answers(RIGHT), results=results))


def test_without_a_results_file_the_report_says_what_was_not_compared(baseline: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", "t", answers(RIGHT), results={})
    found = compared(baseline, other)
    assert found.report.verdict is Verdict.PASS
    assert "candidate: without results file; version, few-shot and template were not compared." in (
        found.report.notes
    )


def test_items_that_one_output_lacks_are_refused_by_count_in_both_directions(
    baseline: Path, tmp_path: Path
) -> None:
    fewer = write(tmp_path / "fewer", "t", answers(RIGHT)[:280])
    assert "t: 20 of the baseline's 300 items are missing" in refused(baseline, fewer)
    assert "t: 20 items are not in the baseline" in refused(fewer, baseline)
    assert "control: t: 20 of the baseline's 300 items" in refused(baseline, baseline, fewer)


def test_common_items_are_judged_if_asked_for_and_the_others_counted(baseline: Path, tmp_path: Path) -> None:
    fewer = write(tmp_path / "fewer", "t", answers(RIGHT)[:280])
    found = compared(baseline, fewer, only_common_items=True)
    (finding,) = found.report.findings
    assert finding.outcome is Outcome.PASSED
    assert finding.delta is not None
    assert finding.delta.n == 280
    assert "t: 20 items that not every output has were left out (--common-items)." in found.report.notes


def test_outputs_without_a_common_item_are_refused_even_then(baseline: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", "t", [sample(number + 1000, exact_match=1.0) for number in range(9)])
    assert "t: no item is in every output" in refused(baseline, other, only_common_items=True)


def test_other_tasks_are_refused_unless_some_are_chosen(baseline: Path, tmp_path: Path) -> None:
    more = write(tmp_path / "more", "t", answers(RIGHT))
    write(more, "u", answers(RIGHT), stamp="2026-11-30T12-00-00.000002")
    assert "candidate: has tasks that the baseline lacks: u" in refused(baseline, more)
    assert "candidate: lacks tasks of the baseline: u" in refused(more, baseline, only_common_items=True)
    assert compare(outputs(baseline, more, tasks=["t"]), policy()).report.verdict is Verdict.PASS
    with pytest.raises(InvalidInput, match=r"baseline: .* has no u \(allowed: t\)"):
        outputs(baseline, more, tasks=["u"])


def test_a_directory_with_the_results_of_several_models_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", "t", answers(RIGHT))
    write(tmp_path / "b", "u", answers(RIGHT), results={"model_name": "other"})
    with pytest.raises(InvalidInput, match="several models: m, other"):
        read_output(tmp_path, field="baseline")


def test_a_directory_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no samples_<task>_"):
        read_output(tmp_path, field="candidate")


@pytest.mark.parametrize("name", ["all", "each", "worst"])
def test_a_task_called_like_a_group_is_refused_and_never_stands_for_the_others(
    tmp_path: Path, name: str
) -> None:
    """A task `all` without loss once stood for all tasks, of which another one had lost every answer."""
    before, after = (write(tmp_path / arm, name, answers(RIGHT)) for arm in ("before", "after"))
    write(before, "t", answers(RIGHT))
    write(after, "t", answers([False] * 300))
    with pytest.raises(InvalidInput, match=f"baseline: no task may be called {name}"):
        outputs(before, after)
    roles = outputs(before, after, tasks=["t"])
    assert compare(roles, policy()).report.verdict is Verdict.FAIL


def test_a_file_without_samples_is_refused_by_its_name(baseline: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match=r"samples_t_.*\.jsonl holds no samples"):
        outputs(baseline, write(tmp_path / "empty", "t", []))


def test_a_hash_that_looks_like_a_repetition_takes_no_other_items_place(tmp_path: Path) -> None:
    items = [*answers(RIGHT), *answers(RIGHT[:1]), *answers([True], doc_hash=f"{0:064x}#1")]
    found = compared(*(write(tmp_path / arm, "t", items) for arm in ("before", "after")))
    assert found.report.deltas[0].n == 302


def test_a_directory_against_itself_is_said_to_be_so(baseline: Path) -> None:
    (note,) = [note for note in compared(baseline, baseline).report.notes if "same directory" in note]
    assert note.startswith("candidate: ")
