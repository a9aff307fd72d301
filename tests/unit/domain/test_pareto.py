"""The Pareto front."""

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.domain.pareto import Point, pareto_front

FIGURES = st.integers(0, 5).map(float)
POINTS = st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=12).map(
    lambda pairs: [Point(name=str(i), costs={"bytes": a, "nll": b}) for i, (a, b) in enumerate(pairs)]
)


def test_what_another_beats_is_not_on_the_front() -> None:
    points = [
        Point(name="small", costs={"bytes": 1, "nll": 3}),
        Point(name="good", costs={"bytes": 3, "nll": 1}),
        Point(name="neither", costs={"bytes": 3, "nll": 3}),
    ]
    assert pareto_front(points) == {"small", "good"}


def test_only_what_all_have_is_compared() -> None:
    points = [Point(name="a", costs={"bytes": 1, "lost": 9}), Point(name="b", costs={"bytes": 2})]
    assert pareto_front(points) == {"a"}
    assert pareto_front([Point(name="a", costs={"x": 1}), Point(name="b", costs={"y": 1})]) == set()
    assert pareto_front([]) == set()


@given(POINTS)
def test_there_is_always_a_front_and_every_other_point_is_beaten_by_one_on_it(points: list[Point]) -> None:
    front = pareto_front(points)
    assert front
    kept = [point for point in points if point.name in front]
    for point in points:
        if point.name not in front:
            assert any(
                all(other.costs[name] <= point.costs[name] for name in ("bytes", "nll")) for other in kept
            )
