"""Where two answers part, and what is kept of long ones."""

from __future__ import annotations

from gatekeeper.domain.answer import Answer, Chances, excerpt, first_difference


def answer(text: str, *places: Chances) -> Answer:
    return Answer(suite="s", mode="cold", item_id="i", prompt="p", expected=None, text=text, places=places)


def test_texts_part_at_the_first_word_that_differs() -> None:
    assert first_difference(answer("the red fox\nran"), answer("the red fox\nslept")) == 3
    assert first_difference(answer("the red"), answer("the red fox")) == 2
    assert first_difference(answer("the red"), answer("the red")) is None


def test_pieces_are_the_likeliest_tokens_where_they_are_known() -> None:
    sure, unsure = (("1", 0.9), ("7", 0.1)), (("7", 0.6), ("1", 0.4))
    assert first_difference(answer("11", sure, sure), answer("17", sure, unsure)) == 1


def test_words_hold_every_character_of_the_text() -> None:
    text = "  two\t words \n"
    assert "".join(answer(text).pieces) == text


def test_a_long_text_keeps_its_ends_and_says_what_is_missing() -> None:
    assert excerpt("x" * 10, 10) == "x" * 10
    assert excerpt("a" * 600 + "b" * 600, 1000) == "a" * 500 + " [200 characters left out] " + "b" * 500
