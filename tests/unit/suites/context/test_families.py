"""What every family writes, and what each one asks for."""

import re
from collections.abc import Callable

import pytest

from workers.suites.context.draft import Draft
from workers.suites.context.families import FAMILIES
from workers.suites.context.frequent import CANDIDATES, frequent
from workers.suites.context.haystack import haystack, hidden, sentences
from workers.suites.context.words import codes
from workers.suites.dice import Dice

Write = Callable[[Dice, int, float], Draft]
SIZES = (1, 2, 31)


def text_of(draft: Draft) -> str:
    """The prompt as one text."""
    if isinstance(draft.prompt, str):
        return draft.prompt
    return "\n".join(message.content for message in draft.prompt)


def answers_of(draft: Draft) -> list[str]:
    return [part.text.strip() for part in draft.continuation if part.scored]


@pytest.fixture(params=sorted(FAMILIES))
def write(request: pytest.FixtureRequest) -> Write:
    return FAMILIES[request.param]


@pytest.mark.parametrize("depth", [0.0, 0.5, 0.99])
def test_a_draft_depends_on_its_arguments_alone_and_the_context_holds_every_answer(
    write: Write, depth: float
) -> None:
    for size in SIZES:
        draft = write(Dice("7"), size, depth)
        assert draft == write(Dice("7"), size, depth) != write(Dice("8"), size, depth)
        assert answers_of(draft)
        assert [answer for answer in answers_of(draft) if answer not in text_of(draft)] == []


def test_a_larger_draft_is_longer_and_asks_for_the_same(write: Write) -> None:
    drafts = [write(Dice("7"), size, 0.0) for size in SIZES]
    lengths = [len(text_of(draft)) for draft in drafts]
    assert lengths == sorted(set(lengths))
    assert len({tuple(answers_of(draft)) for draft in drafts}) == 1


def test_no_answer_is_given_away_by_the_end_of_the_prompt(write: Write) -> None:
    """The last line of the prompt, where the answer is asked for, does not hold it."""
    draft = write(Dice("7"), 30, 0.5)
    last_line = text_of(draft).rsplit("\n", 1)[-1]
    assert answers_of(draft)[0] not in last_line


@pytest.mark.parametrize("depth", [0.0, 0.25, 0.5, 0.75])
def test_a_needle_stands_at_its_depth(depth: float) -> None:
    draft = FAMILIES["needle"](Dice("7"), 40, depth)
    text = text_of(draft).split("\n\nQuestion")[0]
    place = text.index(answers_of(draft)[0]) / len(text)
    assert place == pytest.approx(depth, abs=0.12)


def test_needles_are_spread_and_the_shown_one_is_not_asked_for() -> None:
    draft = FAMILIES["multi_needle"](Dice("7"), 40, 0.1)
    told, repeated = text_of(draft).split("\n\nThe secret numbers once more:\n")
    assert len(re.findall(r"The secret number of the \w+ is \d{4}\.", told)) == 4
    assert not set(re.findall(r"\d{4}", repeated)) & set(answers_of(draft))


def test_each_hop_leads_on_from_the_answer_before() -> None:
    draft = FAMILIES["multi_hop"](Dice("7"), 40, 0.1)
    answers = answers_of(draft)
    leads = [part.text for part in draft.continuation if not part.scored]
    assert len(answers) == 3
    assert all(answer in lead for answer, lead in zip(answers, leads, strict=False))
    for lead, answer in zip(leads, answers[1:], strict=True):
        assert f"{lead.split(chr(10))[1]} {answer}." in text_of(draft)


def test_two_of_three_words_are_the_frequent_one() -> None:
    draft = frequent(Dice("7"), 60, 0.5)
    words = text_of(draft).rsplit("List: ", 1)[-1].split("\n")[0].split(", ")
    (often,) = answers_of(draft)
    assert len(words) == 180
    assert words.count(often) == 120
    assert len(set(words)) == CANDIDATES


def test_the_second_question_comes_after_the_first_answer() -> None:
    draft = FAMILIES["two_questions"](Dice("7"), 40, 0.1)
    first, question, second = (part.text for part in draft.continuation)
    assert text_of(draft).endswith("lives in")
    assert "Question: What has" in question
    assert first != second
    assert second.strip() not in text_of(draft).rsplit("\n\n", 1)[-1]


def test_a_copy_goes_on_where_the_given_part_ends() -> None:
    draft = FAMILIES["copy"](Dice("7"), 30, 0.5)
    listed, given = text_of(draft).removeprefix("List:\n").split("\n\nThe same list again:\n")
    copied = given + "".join(part.text for part in draft.continuation)
    assert copied in listed
    assert listed.startswith(copied)
    assert copied.count("\n") == 15 + 8 - 1


def test_a_chat_has_a_system_prompt_and_asks_last() -> None:
    draft = FAMILIES["chat"](Dice("7"), 10, 0.0)
    assert not isinstance(draft.prompt, str)
    roles = [message.role for message in draft.prompt]
    assert roles == ["system", *["user", "assistant"] * 11, "user"]
    (city,) = answers_of(draft)
    assert city in draft.prompt[1].content


def test_the_haystack_is_varied_prose_that_starts_over_only_after_the_last_sentence() -> None:
    known = len(sentences())
    assert known > 700
    wrapped = haystack(Dice("7"), known + 5)
    assert set(wrapped) == set(sentences())
    assert wrapped[:5] == wrapped[known:]
    assert all(len(sentence) >= 20 for sentence in sentences())


def test_facts_keep_the_order_in_which_they_were_given_where_they_meet() -> None:
    assert (
        hidden(["A.", "B."], [(0.5, "x"), (0.5, "y"), (0.0, "first"), (1.0, "last")])
        == "first A. x y B. last"
    )


def test_codes_are_all_different() -> None:
    found = codes(Dice("7"), 2, 80)
    assert len(set(found)) == 80
    assert all(len(number) == 2 and number[0] != "0" for number in found)
