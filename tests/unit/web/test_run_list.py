"""The rows of the run list."""

from __future__ import annotations

from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Outcome
from gatekeeper.services.views import Progress, RunSummary
from gatekeeper.storage.queries import Headline
from gatekeeper.web.run_list import Headlines, RunLine, progress_view, ref_label, run_lines
from tests.unit.web import samples


def line(run: RunSummary, headlines: Headlines | None = None, trend: tuple[float, ...] = ()) -> RunLine:
    return run_lines([run], headlines or {}, {run.run_id: trend}, now=samples.NOW)[0]


def headline(estimate: float, finding: Outcome | None = None, severity: str | None = None) -> Headline:
    return Headline(
        estimate=estimate, lower=estimate - 0.01, upper=estimate + 0.01, finding=finding, severity=severity
    )


def test_a_finished_run_shows_its_figures_with_what_the_rules_say() -> None:
    run = samples.detail(*samples.failing())
    found = {
        (run.run_id, "decode_kl"): headline(0.1, Outcome.REGRESSED, "block"),
        (run.run_id, "throughput_ratio"): headline(0.8, Outcome.REGRESSED, "warn"),
    }
    shown = line(run, found)
    assert (shown.badge.word, shown.name, shown.candidate) == ("FAIL", "chat-fp8-e5m2", "fp8_e5m2")
    assert (shown.decode_kl.text, shown.decode_kl.detail) == ("0.1000", "0.0900 to 0.1100")
    assert shown.decode_kl.badge is not None
    assert shown.decode_kl.badge.tone == "fail"
    assert shown.throughput.badge is not None
    assert shown.throughput.badge.tone == "unsure"
    assert (shown.capacity.text, shown.capacity.is_measured) == ("not measured", False)
    assert (shown.author, shown.ref, shown.submitted.ago) == ("ci", "serving-config@3f2a91c0", "12 min ago")


def test_a_run_without_verdict_shows_its_state_and_progress() -> None:
    progress = Progress(stage="fidelity", arm="candidate", done=4, total=16)
    shown = line(samples.unfinished(RunState.RUNNING, progress=progress))
    assert shown.badge.word == "RUNNING"
    assert shown.decode_kl.text == "not yet"
    assert shown.progress is not None
    assert (shown.progress.text, shown.progress.done, shown.progress.total) == (
        "candidate: fidelity 4/16",
        4,
        16,
    )


def test_progress_is_told_in_words_where_nothing_can_be_counted() -> None:
    launch = Progress(stage="launch", arm="baseline", done=0, total=1)
    told = {
        "next": progress_view(samples.unfinished(RunState.QUEUED, ahead=0)),
        "queued": progress_view(samples.unfinished(RunState.QUEUED, ahead=2)),
        "claimed": progress_view(samples.unfinished(RunState.RUNNING)),
        "launching": progress_view(samples.unfinished(RunState.RUNNING, progress=launch)),
        "cancelling": progress_view(
            samples.unfinished(RunState.RUNNING, progress=launch, cancel_requested=True)
        ),
    }
    assert {name: (view.text, view.total) for name, view in told.items() if view} == {
        "next": ("waiting for a worker", None),
        "queued": ("waiting for a worker, 2 ahead", None),
        "claimed": ("starting", 0),
        "launching": ("baseline: launch", 0),
        "cancelling": ("cancelling", 0),
    }
    assert progress_view(samples.detail(*samples.failing())) is None


def test_the_candidate_is_named_by_what_it_changes() -> None:
    assert line(samples.detail(*samples.prefix_caching())).candidate == "prefix caching"


def test_labels_leave_out_what_is_not_there() -> None:
    assert [ref_label(*pair) for pair in (("r", "c"), ("r", None), (None, "c"), (None, None))] == [
        "r@c",
        "r",
        "c",
        "",
    ]


def test_a_course_is_drawn_from_two_runs_on_and_told_in_words() -> None:
    run = samples.detail(*samples.passing())
    assert line(run, trend=(0.02,)).trend is None
    spark = line(run, trend=(0.02, 0.04)).trend
    assert spark is not None
    assert spark.label.endswith("last 2 runs up to this: 0.0200, 0.0400")
    assert spark.last[1] < spark.height / 2
