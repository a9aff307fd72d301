"""What free text comes to: kinds of text, and stretches of the decode beside the whole."""

import json
from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.probes import FreeDecodeProbe
from gatekeeper.domain.stretch import figure_in_stretch, stretch_of
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Delta, Outcome, Report, Verdict
from tests.unit.domain.test_rules import judged_by, outcomes_of, rule

SOUND = rule(metric="sound_text", max_drop=0.3)
STRETCHES = ((0, 256), (256, 512), (512, 768), (768, 1024), (1024, 1280))


def probe(**fields: object) -> FreeDecodeProbe:
    return FreeDecodeProbe.model_validate(
        {"probe": "free_decode", "prompts": 4, "decode_tokens": 512} | fields
    )


def texts(kind: str, whole: float, parts: Sequence[float] = (), count: int = 40) -> tuple[Measurement, ...]:
    """Items of a kind, all sound or not, as a whole and in each of the first stretches."""
    named = {figure_in_stretch("sound", *at): value for at, value in zip(STRETCHES, parts, strict=False)}
    return tuple(
        Measurement(
            suite="free_decode", mode="cold", item_id=f"{kind}/{number:02}", cluster=kind, metric=metric, value=value
        )
        for number in range(count)
        for metric, value in {"sound": whole, **named}.items()
    )  # fmt: skip


def report_of(before: tuple[Measurement, ...], after: tuple[Measurement, ...]) -> Report:
    arms = {"baseline": before, "control": before, "candidate": after}
    return judged_by([SOUND], {role: {"measurements": figures} for role, figures in arms.items()})


def free_text(report: Report) -> list[Delta]:
    return [delta for delta in report.deltas if delta.metric == "sound_text"]


def test_a_probe_from_before_there_were_tool_calls_is_read_as_what_it_was() -> None:
    stored = {"probe": "free_decode", "prompts": 4, "decode_tokens": 512, "seed": 1, "batches": 1}
    read = FreeDecodeProbe.model_validate_json(json.dumps(stored))
    assert read.items == {"json": 4, "prose": 4}


def test_every_kind_has_its_items_and_all_are_in_flight_together() -> None:
    suite = Suite(name="s", description="", probes=(probe(kinds=("prose", "tool_call", "json")),))
    assert probe(kinds=("tool_call", "prose")).items == {"prose": 4, "tool_call": 4}
    assert suite.quality_requests == 12
    assert suite.prompt_tokens_in_flight(100) == 12 * 384


@pytest.mark.parametrize("kinds", [(), ("prose", "prose"), ("poem",)])
def test_kinds_are_some_of_those_there_are_each_once(kinds: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        probe(kinds=kinds)


@pytest.mark.parametrize(
    ("tokens", "stretches"),
    [
        (256, ((0, 256),)),
        (300, ((0, 300),)),
        (512, ((0, 256), (256, 512))),
        (1023, ((0, 256), (256, 512), (512, 1023))),
    ],
)
def test_stretches_cover_the_decode_and_none_is_short(
    tokens: int, stretches: tuple[tuple[int, int], ...]
) -> None:
    assert probe(decode_tokens=tokens).stretches == stretches


def test_a_figure_of_a_stretch_is_told_from_others() -> None:
    name = figure_in_stretch("sound", 256, 512)
    assert stretch_of(name, "sound") == "tokens 256-512"
    assert stretch_of(name, "distinct_share") is None
    assert stretch_of("sound", "sound") is None


def test_prose_that_is_sound_at_first_and_unsound_after_shows_where_it_breaks() -> None:
    report = report_of(
        (*texts("prose", 1, (1, 1, 1, 1, 1)), *texts("json", 1)),
        (*texts("prose", 0, (1, 0, 0, 0, 0)), *texts("json", 1)),
    )
    assert report.verdict is Verdict.FAIL
    assert [(delta.group, delta.n, delta.baseline, delta.candidate) for delta in free_text(report)] == [
        ("all", 80, 1.0, 0.5),
        ("json", 40, 1.0, 1.0),
        ("prose", 40, 1.0, 0.0),
        ("tokens 0-256", 40, 1.0, 1.0),
        ("tokens 256-512", 40, 1.0, 0.0),
        ("tokens 512-768", 40, 1.0, 0.0),
        ("tokens 768-1024", 40, 1.0, 0.0),
        ("tokens 1024-1280", 40, 1.0, 0.0),
    ]
    assert [(found.metric, found.group) for found in report.findings] == [("sound_text", "all")]


def test_stretches_change_nothing_of_what_an_item_counts() -> None:
    """Also for a rule on each kind by itself: a stretch is no kind."""
    each = {"measurements": (*texts("prose", 1, (0, 0)), *texts("json", 1))}
    report = judged_by([SOUND | {"group": "each"}], dict.fromkeys(("baseline", "control", "candidate"), each))
    assert outcomes_of(report) == {
        ("sound_text", "json"): Outcome.PASSED,
        ("sound_text", "prose"): Outcome.PASSED,
    }


def test_runs_from_before_stretches_were_measured_have_none() -> None:
    same = texts("prose", 1)
    assert {delta.group for delta in free_text(report_of(same, same))} == {"all", "prose"}


def test_tool_calls_that_the_baseline_itself_cannot_make_are_told_apart() -> None:
    same = (*texts("prose", 1), *texts("json", 1), *texts("tool_call", 0))
    report = report_of(same, same)
    assert report.verdict is Verdict.PASS
    assert "sound free text: no power in tool_call; the baseline itself hardly solves that." in report.notes
    alone = {"measurements": same}
    one = judged_by(
        [SOUND | {"group": "tool_call"}], dict.fromkeys(("baseline", "control", "candidate"), alone)
    )
    assert outcomes_of(one) == {("sound_text", "tool_call"): Outcome.NOT_EXERCISED}
    assert one.verdict is Verdict.INVALID
