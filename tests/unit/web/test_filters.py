"""Filters between the address, the query and the form; and who may send forms."""

from __future__ import annotations

import pytest

from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.verdict import Verdict
from gatekeeper.web import filters
from gatekeeper.web.origin import is_same_origin


def test_empty_fields_do_not_filter() -> None:
    read = filters.read_filters({"q": "  ", "verdict": "FAIL", "state": "", "unknown": "x"})
    assert (read.q, read.verdict, read.state, read.limit) == (None, Verdict.FAIL, None, filters.PAGE_SIZE)


@pytest.mark.parametrize(
    ("query", "named"),
    [({"verdict": "MAYBE"}, "verdict"), ({"since": "yesterday"}, "since"), ({"q": "x" * 300}, "q")],
)
def test_a_wrong_filter_is_named(query: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        filters.read_filters(query)


def test_the_form_shows_what_the_address_says() -> None:
    form = filters.filter_form({"q": "fp8", "model": "gone"}, models=["smollm2-135m"])
    models = next(choice for choice in form.choices if choice.name == "model")
    assert [(option.value, option.is_chosen) for option in models.options] == [
        ("smollm2-135m", False),
        ("gone", True),
    ]
    assert (form.q, form.is_active) == ("fp8", True)
    assert not filters.filter_form({"cursor": "abc"}, models=[]).is_active


def test_every_scheme_can_be_chosen() -> None:
    assert {"none", "fp8_e4m3", "fp8_e5m2", "kivi", "turboquant_k8v4"} <= set(filters.SCHEMES)


def test_paging_keeps_the_filters() -> None:
    query = {"q": "a b&c", "verdict": "PASS", "state": "", "cursor": "old"}
    assert filters.address(query, cursor="new") == "/runs?q=a+b%26c&verdict=PASS&cursor=new"
    assert filters.address({}) == "/runs"


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"sec-fetch-site": "same-origin", "origin": "http://gate:8800", "host": "gate:8800"}, True),
        ({"sec-fetch-site": "same-origin", "host": "gate:8800"}, True),
        ({"origin": "https://gate:8800", "host": "gate:8800"}, True),
        ({"sec-fetch-site": "cross-site", "origin": "http://gate:8800", "host": "gate:8800"}, False),
        ({"sec-fetch-site": "same-site", "host": "gate:8800"}, False),
        ({"sec-fetch-site": "none", "host": "gate:8800"}, False),
        ({"origin": "http://gate:9999", "host": "gate:8800"}, False),
        ({"origin": "null", "host": ""}, False),
        ({"host": "gate:8800"}, False),
        ({}, False),
    ],
)
def test_only_forms_of_our_own_pages_count(headers: dict[str, str], allowed: bool) -> None:
    assert is_same_origin(headers) is allowed
