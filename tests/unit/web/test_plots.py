"""Where the charts put things."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gatekeeper.web import axes, line_charts, plots
from gatekeeper.web.plots import Forest


def forest(**more: Any) -> Forest:
    given: dict[str, Any] = {
        "estimate": 0.03, "lower": 0.02, "upper": 0.04, "limit": (0.05, "0.05"), "neutral": (0.0, "no change"),
        "noise": 0.0, "holds_above": False, "tone": "pass", "label": "words",
    }  # fmt: skip
    return plots.forest(**given | more)


def test_a_passing_interval_lies_within_the_zone() -> None:
    plot = forest()
    assert plot.neutral.at < plot.low < plot.dot < plot.high < plot.limit.at
    assert (plot.zone_x, plot.zone_width) == (0.0, plot.limit.at)
    assert plot.noise == plot.neutral.at


def test_a_lower_limit_has_its_zone_on_the_right() -> None:
    plot = forest(
        estimate=0.8, lower=0.78, upper=0.82, limit=(0.85, "85%"), neutral=(1.0, "n"), holds_above=True
    )
    assert plot.high < plot.limit.at == plot.zone_x
    assert plot.zone_x + plot.zone_width == plot.width


def test_an_open_end_reaches_the_edge() -> None:
    plot = forest(upper=None)
    assert (plot.high, plot.is_open_high, plot.is_open_low) == (plot.width, True, False)


def test_without_bounds_only_the_estimate_is_drawn() -> None:
    plot = forest(lower=None, upper=None)
    assert plot.low == plot.high == plot.dot
    assert not plot.is_open_low
    assert not plot.is_open_high


@pytest.mark.parametrize("estimate", [0.0, 1e-12, 8.0, -3.5])
def test_everything_stays_on_the_drawing(estimate: float) -> None:
    plot = forest(estimate=estimate, lower=estimate, upper=estimate, limit=(estimate, "l"), noise=None)
    for at in (plot.low, plot.high, plot.dot, plot.limit.at, plot.neutral.at):
        assert 0 <= at <= plot.width


@pytest.mark.parametrize(
    ("low", "high"), [(0, 0.0271), (0.7, 1.0), (-0.02, 0.11), (0, 0), (3, 3), (0, 1e-9), (1, 5e6)]
)
def test_ticks_are_round_and_enclose_the_values(low: float, high: float) -> None:
    ticks = axes.nice_ticks(low, high)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert 2 <= len(ticks) <= 8
    steps = [after - before for before, after in pairwise(ticks)]
    assert max(steps) == pytest.approx(min(steps))


def test_a_chart_shows_its_limit_and_its_base() -> None:
    chart = line_charts.chart(
        [
            (
                "candidate",
                "first",
                [line_charts.Point(x=4, y=0.01), line_charts.Point(x=12, y=0.02, low=0.018, high=0.023)],
            )
        ],
        limit=(0.05, "limit 0.05"),
        base=0.0,
        write=str,
        label="l",
    )
    assert chart.limit is not None
    xs, ys = zip(*chart.lines[0].dots, strict=True)
    assert chart.left <= min(xs) < max(xs) <= chart.right
    assert chart.limit.at < min(ys) < max(ys) < chart.bottom
    assert chart.y_marks[0].at == chart.bottom


def test_shares_never_leave_the_whole() -> None:
    assert [plots.share(part, 10) for part in (-1, 0, 2.5, 11)] == [0, 0, 250, 1000]
    assert plots.share(1, 0) == 0
