"""What damage does to a served distribution."""

import math

import pytest

from tests.faults.answers import Change, Layout, changed, pieces
from tests.faults.damage import Place, Row, noised
from tests.unit.faults.samples import HALF, choice

ROW = {"a": math.log(0.5), "b": math.log(0.3), "c": math.log(0.1)}


def kl(before: Row, after: Row) -> float:
    """In nats, what is not listed taken as one more token."""
    rest = [1 - sum(math.exp(value) for value in row.values()) for row in (before, after)]
    listed = sum(math.exp(value) * (value - after[token]) for token, value in before.items())
    return listed + rest[0] * math.log(rest[0] / rest[1])


def test_damage_leaves_part_of_one_distribution_best_first() -> None:
    row = noised(ROW, strength=2.0, seed="s")
    assert set(row) == set(ROW)
    assert list(row.values()) == sorted(row.values(), reverse=True)
    assert 0 < sum(math.exp(value) for value in row.values()) < 1


def test_the_same_place_is_damaged_alike_and_another_otherwise() -> None:
    assert noised(ROW, strength=1.0, seed="p/1") == noised(ROW, strength=1.0, seed="p/1")
    assert noised(ROW, strength=1.0, seed="p/1") != noised(ROW, strength=1.0, seed="p/2")


def test_without_strength_nothing_changes() -> None:
    assert noised(ROW, strength=0.0, seed="s") == pytest.approx(ROW)


def test_damage_grows_with_its_strength_and_reorders() -> None:
    rows = {s: [noised(ROW, strength=s, seed=f"{i}") for i in range(400)] for s in (0.25, 0.5, 1.0)}
    mean = {strength: sum(kl(ROW, row) for row in some) / 400 for strength, some in rows.items()}
    assert 0 < mean[0.25] < mean[0.5] < mean[1.0] < 1
    assert 0.1 < sum(next(iter(row)) != "a" for row in rows[1.0]) / 400 < 0.6


def swap_from(context: int) -> Change:
    """Gives the last token of a row the first one's probability, from `context` on."""

    def change(place: Place, row: Row) -> Row:
        names, values = list(row), sorted(row.values(), reverse=True)
        return dict(zip(reversed(names), values, strict=True)) if place.context >= context else row

    return change


def test_free_text_follows_what_became_most_probable() -> None:
    result = changed(choice([" a", " b", " c"]), swap_from(11), Layout(prompt_tokens=10))
    assert result["text"] == " a other other"
    assert result["logprobs"]["tokens"] == [" a", " other", " other"]
    assert result["logprobs"]["token_logprobs"] == [HALF] * 3


def test_forced_tokens_stay_and_only_their_probabilities_change() -> None:
    before = choice(["token_id:5", "token_id:6"])
    result = changed(before, swap_from(11), Layout(prompt_tokens=10, forced=True))
    assert result["logprobs"]["tokens"] == ["token_id:5", "token_id:6"]
    assert result["logprobs"]["token_logprobs"] == pytest.approx([math.log(0.5), math.log(0.25)])
    assert result["text"] == before["text"]


def test_an_echoed_prompt_is_scored_at_its_own_places_and_its_first_token_never() -> None:
    result = changed(
        choice(["x", "y", "z", " a"], prompt=3), swap_from(2), Layout(prompt_tokens=3, echoed=True)
    )
    assert result["logprobs"]["tokens"] == ["x", "y", "z", " other"]
    assert result["logprobs"]["token_logprobs"] == [None, HALF, math.log(0.25), HALF]
    assert result["text"] == "xyz a"


def test_prompt_logprobs_change_with_their_ranks() -> None:
    entry = {"decoded_token": "?"}
    table = {
        "7": {"logprob": math.log(0.5), "rank": 1, **entry},
        "8": {"logprob": math.log(0.25), "rank": 2, **entry},
    }
    result = changed(
        {"index": 0, "text": "", "prompt_logprobs": [None, table, table]},
        swap_from(2),
        Layout(prompt_tokens=3),
    )
    first, untouched, last = result["prompt_logprobs"]
    assert (first, untouched) == (None, table)
    assert [(token, row["rank"]) for token, row in last.items()] == [("7", 2), ("8", 1)]
    assert last["7"]["logprob"] == math.log(0.25)


def test_a_later_chunk_knows_its_place() -> None:
    layout = Layout(prompt_tokens=10, offset=4)
    assert layout.place(0) == Place(context=14, decoded=4)
    assert layout.decoded_tokens(choice([" a", " b"])) == 2
    assert layout.decoded_tokens({"index": 0, "text": " a"}) == 1


def test_a_text_falls_into_tokens_or_into_words() -> None:
    assert list(pieces(choice([" a", "b"]))) == [" a", "b"]
    assert list(pieces({"index": 0, "text": " two words"})) == [" two", " words"]
