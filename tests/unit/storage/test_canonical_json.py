"""One text for each value that JSON can hold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.storage.codec import canonical_json


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"b": 1, "a": [True, None]}, {"a": (True, None), "b": 1}),
        (0.0, -0.0),
        (1.0, 1),
        (1e22, 10**22),
        ({"deep": [{"x": -0.0}]}, {"deep": [{"x": 0}]}),
    ],
)
def test_what_is_the_same_value_is_the_same_text(first: object, second: object) -> None:
    assert canonical_json(first) == canonical_json(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [(0.1, math.nextafter(0.1, 1)), (True, 1), (None, 0), ("1", 1), ([1, 2], [2, 1]), ({"a": None}, {})],
)
def test_what_differs_in_the_last_bit_or_in_kind_is_another_text(first: object, second: object) -> None:
    assert canonical_json(first) != canonical_json(second)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_have_the_same_text_exactly_if_they_are_equal(first: float, second: float) -> None:
    assert (canonical_json(first) == canonical_json(second)) == (first == second)
