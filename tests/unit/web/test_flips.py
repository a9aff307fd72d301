"""The flip browser's view models."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.parting import part_of
from gatekeeper.services.items import ItemFilters
from gatekeeper.web import flips
from gatekeeper.web.token_page import TokenPage, token_page
from tests.unit.web import samples

BEFORE, AFTER = samples.traces(samples.EXACT)[3], samples.traces(samples.HARSH)[3]
ITEMS = samples.items()


def page(place: int | None = None) -> TokenPage:
    parting = part_of(BEFORE, AFTER)
    assert parting is not None
    return token_page(samples.RUN_ID, (BEFORE, AFTER, parting), {1: "\n", 2: " two"}, place=place)


def test_without_a_choice_both_ways_are_shown() -> None:
    assert flips.read_filters({}).flip == "any"
    assert flips.read_filters({"flip": "lost", "task": " gk_facts "}).task == "gk_facts"
    with pytest.raises(InvalidInput, match="flip"):
        flips.read_filters({"flip": "sideways"})


def test_a_context_is_a_range_in_the_address_and_in_the_form() -> None:
    query = {"context_from": "512", "context_to": "1024"}
    filters = flips.read_filters(query)
    assert (filters.context_from, filters.context_to) == (512, 1024)
    form = flips.flip_form(query, ITEMS)
    assert (form.context_from, form.context_to, form.is_active) == ("512", "1024", True)
    assert flips.address(samples.RUN_ID, query, cursor="c").endswith(
        "?context_from=512&context_to=1024&cursor=c"
    )


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"context_from": "many"}, "context_from: got 'many'"),
        ({"context_from": "-1"}, "context_from: got '-1'"),
        ({"context_to": "99999999999"}, "context_to: got"),
        ({"context_to": "0"}, "context_to: 0 tokens end before"),
        ({"context_from": "512", "context_to": "512"}, "context_to: .*more than context_from, 512"),
    ],
)
def test_a_context_that_holds_no_length_is_refused_by_its_field(query: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        flips.read_filters(query)


def test_documents_are_filtered_by_mode_and_context() -> None:
    known = part_of(replace(BEFORE, context_tokens=512), replace(AFTER, context_tokens=512))
    unknown = part_of(BEFORE, AFTER)
    assert known is not None
    assert unknown is not None
    for query, expected in (
        ({}, True),
        ({"mode": "warm"}, False),
        ({"context_from": "512"}, True),
        ({"context_to": "512"}, False),
        ({"context_from": "256", "context_to": "513"}, True),
    ):
        assert flips.read_filters(query).admits(known) is expected
    assert flips.read_filters({}).admits(unknown)
    assert not flips.read_filters({"context_from": "0"}).admits(unknown)


def test_the_same_as_json_has_the_same_filters() -> None:
    query = {"task": "a b", "mode": "cold", "flip": "lost", "context_from": "512", "cursor": "c"}
    as_items, as_partings = flips.api_addresses(samples.RUN_ID, flips.read_filters(query))
    asked = dict(parse_qsl(urlsplit(as_items).query))
    assert asked == query | {"include": "answers", "limit": "50"}
    assert dict(parse_qsl(urlsplit(as_partings).query)) == {"mode": "cold", "context_from": "512"}
    assert ItemFilters.model_validate(asked) == flips.read_filters(query)
    unfiltered, _ = flips.api_addresses(samples.RUN_ID, flips.read_filters({}))
    assert dict(parse_qsl(urlsplit(unfiltered).query)) == {"flip": "any", "include": "answers", "limit": "50"}


def test_an_item_shows_both_outcomes_and_the_probability_beside_them() -> None:
    flipped = [i for i in ITEMS if i.metric == "correct" and i.baseline != i.candidate]
    line = flips.flip_lines(flipped, [i for i in ITEMS if i.metric == "right_choice_probability"])[0]
    assert (line.baseline.word, line.candidate.word) == ("wrong", "right")
    assert line.probability == ("45.0%", "55.0%")


def test_the_form_offers_what_the_run_has() -> None:
    form = flips.flip_form({"mode": "warm"}, ITEMS)
    offered = {choice.label: [option.value for option in choice.options] for choice in form.choices}
    assert offered["Change"] == ["lost", "gained"]
    assert offered["Mode"] == ["cold", "warm"]
    assert form.is_active


def test_documents_that_part_first_come_first() -> None:
    pairs = zip(samples.traces(samples.EXACT), samples.traces(samples.HARSH), strict=True)
    partings = [parting for one, other in pairs if (parting := part_of(one, other))]
    same = part_of(BEFORE, BEFORE)
    assert same is not None
    lines = flips.parting_lines(samples.RUN_ID, [same, *partings])
    assert lines[-1].first == "nowhere"
    assert lines[0].url.startswith(f"/runs/{samples.RUN_ID}/tokens?mode=cold&item=doc-")


def test_the_first_parting_is_looked_at() -> None:
    shown = page()
    chosen = next(cell for cell in shown.cells if cell.is_chosen)
    assert chosen.differs
    assert not any(cell.differs for cell in shown.cells if cell.place < chosen.place)
    assert shown.rows[0].baseline_bar >= shown.rows[1].baseline_bar
    assert sum(row.is_given for row in shown.rows) <= 1


def test_a_place_beyond_the_end_is_the_last() -> None:
    shown = page(place=10_000)
    assert shown.place == samples.TOKENS
    assert shown.later_url is None
    assert shown.earlier_url is not None


def test_what_does_not_print_is_made_visible() -> None:
    given = {cell.given for cell in page(place=0).cells}
    assert "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}" in given
    assert " two" in given
    assert "#3" in given
