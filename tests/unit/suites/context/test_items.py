"""Items of the right length, cut where the answers begin, by whatever tokenizer there is."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.word_server import WordServer
from workers.engines.errors import ProbeFailed, Unsupported
from workers.suites.context.draft import Draft, Part
from workers.suites.context.families import FAMILIES
from workers.suites.context.items import Item, Tokenizer, largest_fit, write_items
from workers.suites.dice import Dice


def items(family: str, *, length: int, count: int = 3, seed: int = 1) -> tuple[WordServer, list[Item]]:
    server = WordServer()
    tokenizer = Tokenizer(server=server)  # type: ignore[arg-type]
    written = write_items(
        FAMILIES[family],  # type: ignore[index]
        family, tokenizer, length=length, count=count, seed=seed,
    )  # fmt: skip
    return server, list(written)


@pytest.mark.parametrize("length", [256, 900])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_items_are_as_long_as_asked_or_one_unit_shorter(family: str, length: int) -> None:
    _, found = items(family, length=length)
    longest_unit = 110
    assert all(length - longest_unit < item.context_tokens <= length for item in found)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_is_scored_are_the_answers_and_nothing_else(family: str) -> None:
    server, found = items(family, length=300)
    for item in found:
        whole = server.text(item.prompt + item.forced)
        answers = "".join(
            server.text([token]) if scored else "|"
            for token, scored in zip(item.forced, item.scored, strict=True)
        )
        for answer in filter(None, answers.replace(" ", "").split("|")):
            assert whole.count(answer) >= 2, "it stands in the context and is forced"
        assert item.scored[-1]


def test_ids_tell_family_length_depth_and_number() -> None:
    _, found = items("needle", length=300, count=4)
    assert [item.item_id for item in found] == [
        "needle/300/0.12/0",
        "needle/300/0.38/1",
        "needle/300/0.62/2",
        "needle/300/0.88/3",
    ]


def test_another_seed_gives_other_items() -> None:
    _, one = items("lookup", length=300)
    _, same = items("lookup", length=300)
    _, other = items("lookup", length=300, seed=2)
    assert one == same
    assert one != other


def test_few_requests_are_made() -> None:
    server, found = items("needle", length=1500, count=10)
    assert server.tokenized / len(found) < 7


def test_an_item_that_is_too_long_by_chance_is_drawn_anew() -> None:
    def write(dice: Dice, size: int, _depth: float) -> Draft:
        drawn.append(dice.below(40))
        return Draft(prompt="word " * (drawn[-1] + size), continuation=(Part(text="answer"),))

    drawn: list[int] = []
    tokenizer = Tokenizer(server=WordServer())  # type: ignore[arg-type]
    found = list(write_items(write, "any", tokenizer, length=20, count=12, seed=1))
    assert len(found) == 12
    assert all(item.context_tokens <= 20 for item in found)
    assert max(drawn) > 20, "some were too long"


def test_a_length_that_does_not_hold_the_task_is_said() -> None:
    with pytest.raises(ProbeFailed, match=r"multi_needle/60/0.17/0: \d+ tokens at the least, 60 are allowed"):
        items("multi_needle", length=60)


def test_a_model_without_a_chat_template_cannot_be_asked_a_chat() -> None:
    tokenizer = Tokenizer(server=WordServer(has_template=False))  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="no chat template"):
        list(write_items(FAMILIES["chat"], "chat", tokenizer, length=300, count=1, seed=1))


def test_an_answer_whose_first_token_reaches_into_the_prompt_begins_with_that_token() -> None:
    """`.` and `.` + newline are different tokens, so the cut lies before them."""
    draft = Draft(prompt="It ends here.", continuation=(Part(text="\nAnd goes on"),))
    server = WordServer()
    (item,) = write_items(
        lambda _dice, size, _depth: Draft(prompt="x " * size + str(draft.prompt), continuation=draft.continuation),
        "made", Tokenizer(server=server), length=30, count=1, seed=1,  # type: ignore[arg-type]
    )  # fmt: skip
    assert server.text(item.forced) == ".\nAnd goes on"
    assert all(item.scored)


def growing_by(sizes: Sequence[int]) -> Callable[[int], int]:
    """A count that grows by the given steps, then by one."""
    return lambda size: sum(sizes[:size]) + max(size - len(sizes), 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(0, 800), st.integers(1, 200))
def test_the_largest_fit_is_found_from_any_guess(sizes: list[int], limit: int, guess: int) -> None:
    count = growing_by(sizes)
    found = largest_fit(count, limit=limit, guess=guess)
    assert found == 0 or count(found) <= limit
    assert count(found + 1) > limit
