"""A rule that could not have failed does not pass."""

import pytest

from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.verdict import Outcome, Report, Verdict
from tests.unit.domain.test_rules import answers, by_answers, judged_by, outcomes_of, rule, scores

DROP = rule(metric="accuracy", max_drop=0.05)
SCORE = rule(metric="choice_probability", max_drop=0.05)


def solved(share: float, task: str, items: int = 400) -> tuple[Measurement, ...]:
    """Items of a task, that share of them right."""
    return tuple(
        Measurement(suite="accuracy", mode="cold", item_id=f"{task}/{i}", cluster=task, metric="correct",
                    value=float(i < share * items))
        for i in range(items)
    )  # fmt: skip


def unchanged(rules: list[dict[str, object]], measurements: tuple[Measurement, ...]) -> Report:
    same = {role: {"measurements": measurements} for role in ("baseline", "control", "candidate")}
    return judged_by(rules, same)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.05])
def test_where_the_baseline_has_no_more_to_lose_than_the_margin_nothing_passes(share: float) -> None:
    report = unchanged([DROP], solved(share, "t"))
    (finding,) = report.findings
    assert finding.outcome is Outcome.NOT_EXERCISED
    assert report.verdict is Verdict.INVALID
    assert f"no power: the baseline itself reaches {100 * share:.1f}%" in report.sentence


def test_a_little_more_than_the_margin_can_be_lost() -> None:
    assert unchanged([DROP], solved(0.06, "t")).verdict is Verdict.PASS


def test_a_score_that_the_baseline_hardly_has_passes_nothing_either() -> None:
    assert unchanged([SCORE], scores([0.01, 0.02, 0.03, 0.02] * 10)).verdict is Verdict.INVALID
    assert unchanged([SCORE], scores([0.1, 0.2, 0.3, 0.2] * 10)).verdict is Verdict.PASS


def test_a_proven_loss_fails_although_the_margin_leaves_it_no_room() -> None:
    """Of 100 items 7 are right, too few for a margin of 10 points, and all of them are lost."""
    right = solved(0.07, "t", items=100)
    wrong = solved(0.0, "t", items=100)
    report = judged_by(
        [rule(metric="accuracy", max_drop=0.1)],
        {"baseline": {"measurements": right}, "control": {"measurements": right}, "candidate": {"measurements": wrong}},
    )  # fmt: skip
    assert report.verdict is Verdict.FAIL


def test_of_each_task_by_itself_the_one_without_power_is_told_apart() -> None:
    report = unchanged([DROP | {"group": "each"}], (*solved(0.5, "able"), *solved(0.01, "at_sea")))
    assert outcomes_of(report) == {
        ("accuracy", "able"): Outcome.PASSED,
        ("accuracy", "at_sea"): Outcome.NOT_EXERCISED,
    }
    assert report.verdict is Verdict.INVALID


def test_the_worst_task_does_not_pass_while_one_has_no_power() -> None:
    report = unchanged([DROP | {"group": "worst"}], (*solved(0.5, "able"), *solved(0.01, "at_sea")))
    (finding,) = report.findings
    assert (finding.outcome, finding.group) == (Outcome.NOT_EXERCISED, "at_sea")


def test_a_rule_on_all_items_passes_and_a_note_names_the_task_without_power() -> None:
    report = unchanged([DROP], (*solved(0.5, "able"), *solved(0.01, "at_sea")))
    assert report.verdict is Verdict.PASS
    assert "accuracy change: no power in at_sea; the baseline itself hardly solves that." in report.notes
    assert not any("no power" in note for note in by_answers([DROP], {"t": 0}).notes)


def test_a_task_that_could_not_be_asked_is_not_exercised_with_its_reason() -> None:
    still = answers({"able": 0})
    skipped = (("accuracy/chat", "no chat template"),)
    report = judged_by(
        [DROP | {"group": "chat"}],
        {
            "baseline": {"measurements": still, "skipped": skipped},
            "control": {"measurements": still, "skipped": skipped},
            "candidate": {"measurements": still, "skipped": skipped},
        },
    )
    assert report.verdict is Verdict.INVALID
    assert "accuracy did not run: no chat template" in report.sentence
