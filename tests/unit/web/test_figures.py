"""Numbers and times as pages show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gatekeeper.domain.policy import Rule
from gatekeeper.domain.verdict import Delta
from gatekeeper.web import figures
from gatekeeper.web.times import ago, duration, moment


def delta(metric: str, estimate: float, lower: float | None, upper: float | None) -> Delta:
    return Delta(
        metric=metric, suite="s", mode="cold", unit="", n=16, clusters=16, baseline=None, candidate=None,
        estimate=estimate, lower=lower, upper=upper, confidence=0.95, method="a test",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("decode_kl", 0.02714, "0.0271"),
        ("decode_kl", 0.0, "0.0000"),
        ("decode_nll", 0.028, "+0.0280"),
        ("decode_nll", -0.028, "−0.0280"),
        ("decode_nll", -0.00001, "0.0000"),
        ("accuracy", -0.025, "−2.5 pts"),
        ("accuracy", 0.0, "0.0 pts"),
        ("top1_agreement", 0.903, "90.3%"),
        ("kv_capacity_ratio", 2.0, "2.00×"),
        ("a_metric_of_the_future", 0.5, "0.5000"),
    ],
)
def test_a_figure_carries_what_its_metric_needs(metric: str, value: float, shown: str) -> None:
    assert figures.number(metric, value) == shown


@pytest.mark.parametrize("metric", ["decode_kl", "accuracy", "top1_agreement", "throughput_ratio"])
def test_what_is_missing_is_not_a_zero(metric: str) -> None:
    assert figures.number(metric, None) == "not measured"
    assert figures.level(metric, None) == "not measured"


@pytest.mark.parametrize(
    ("seen", "shown"),
    [
        (delta("decode_kl", 0.0271, 0.0243, 0.0312), "0.0243 to 0.0312"),
        (delta("accuracy", -0.025, -0.061, 0.011), "−6.1 to +1.1 pts"),
        (delta("top1_agreement", 0.9, 0.88, None), "88.0 to unbounded"),
        (delta("decode_kl", 0.02, None, 0.03), "unbounded to 0.0300"),
        (delta("throughput_ratio", 0.96, None, None), "bounds unknown"),
        (delta("kv_capacity_ratio", 2.0, 2.0, 2.0), "exact"),
        (delta("decode_kl", 0.0, 0.0, 0.0), "no spread"),
    ],
)
def test_bounds_say_when_there_are_none(seen: Delta, shown: str) -> None:
    assert figures.bounds(seen) == shown


@pytest.mark.parametrize(
    ("rule", "shown", "mark"),
    [
        (Rule(metric="decode_kl", at_most=0.05, reason="r"), "≤ 0.05", "0.05"),
        (Rule(metric="top1_agreement", at_least=0.85, reason="r"), "≥ 85%", "85%"),
        (Rule(metric="throughput_ratio", at_least=0.9, reason="r"), "≥ 0.90×", "0.90×"),
        (Rule(metric="accuracy", max_drop=0.05, reason="r"), "drop < 5 pts", "−5 pts"),
        (Rule(metric="accuracy", at_least_of_baseline=0.99, reason="r"), "> 99% of the baseline", "0 pts"),
        (
            Rule(metric="decode_kl", at_most_noise_multiple=3, limit_floor=0.005, reason="r"),
            "≤ 3× the noise floor, or 0.005",
            "0",
        ),
    ],
)
def test_a_limit_is_told_in_the_metrics_own_unit(rule: Rule, shown: str, mark: str) -> None:
    assert (figures.limit(rule), figures.bound_mark(rule.metric, rule.bound or 0.0)) == (shown, mark)


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("accuracy", 0.675, "67.5%"),
        ("kv_capacity_ratio", 46_592, "46,592 tokens"),
        ("throughput_ratio", 107.24, "107.2 tok/s"),
        ("ttft_p50_ratio", 1410.2, "1,410 ms"),
    ],
)
def test_what_an_arm_showed_has_its_unit(metric: str, value: float, shown: str) -> None:
    assert figures.level(metric, value) == shown


def test_a_tiny_p_value_is_not_zero() -> None:
    assert figures.probability(1e-9) == "< 0.0001"
    assert figures.probability(0.0213) == "0.0213"
    assert figures.probability(None) == ""


@pytest.mark.parametrize(("given", "shown"), [(900, "900 B"), (18_432, "18.0 KiB"), (2**30, "1.00 GiB")])
def test_sizes_use_the_largest_fitting_unit(given: int, shown: str) -> None:
    assert figures.size(given) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.42, "0.4 s"),
        (38.2, "38 s"),
        (125, "2 min 05 s"),
        (3720, "1 h 02 min"),
        (-3, "0.0 s"),
        (59.7, "1 min 00 s"),
    ],
)
def test_durations_read_naturally(seconds: float, shown: str) -> None:
    assert duration(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("earlier", "shown"),
    [
        (timedelta(seconds=2), "now"),
        (timedelta(seconds=-30), "now"),
        (timedelta(minutes=3), "3 min ago"),
        (timedelta(hours=5), "5 h ago"),
        (timedelta(days=6), "6 d ago"),
        (timedelta(days=60), "1 Oct 2026"),
    ],
)
def test_ages_use_one_unit_until_a_date_is_clearer(earlier: timedelta, shown: str) -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert ago(now - earlier, now=now) == shown


def test_a_moment_is_told_in_full_and_to_machines() -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    told = moment(datetime(2026, 11, 3, 9, 5, 7, tzinfo=UTC), now=now)
    assert (told.iso, told.full) == ("2026-11-03T09:05:07+00:00", "3 Nov 2026, 09:05:07 UTC")
