"""When a freely generated text is unsound."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.domain.probes import FreeDecodeProbe, FreeText
from workers.suites.degeneration import distinct_share, loop_tokens, valid_records
from workers.suites.free_decode import KEYS, Prompt, measurements_of, prompts_of

VARIED = Random(1).sample(range(50_000), 400)
PROSE = (
    "It was very, very late when the lamp went out and nobody in the house had had a word with her about it."
)
GOOD = '{"id": 7, "item": "lamp", "colour": "red", "price": 5, "stock": 1}'


def test_varied_text_has_no_loop_and_all_its_pieces_are_distinct() -> None:
    assert loop_tokens(VARIED) == 0
    assert distinct_share(VARIED) == 1.0


@pytest.mark.parametrize("period", [1, 2, 7, 40, 64])
def test_a_piece_repeated_in_a_row_is_a_loop_wherever_it_stands(period: int) -> None:
    repeats = max(4, 60 // period + 1)
    looped = VARIED[:50] + VARIED[100 : 100 + period] * repeats + VARIED[300:350]
    assert loop_tokens(looped) == period * repeats
    assert distinct_share(looped) < 1.0


def test_a_refrain_and_a_short_stammer_are_no_loops() -> None:
    assert loop_tokens(VARIED[:30] + VARIED[60:70] * 3 + VARIED[200:250]) == 0
    assert loop_tokens(VARIED[:30] + [5] * 20 + VARIED[200:250]) == 0


@given(st.lists(st.integers(0, 3), max_size=120))
def test_a_loop_is_never_longer_than_the_text(tokens: list[int]) -> None:
    assert 0 <= loop_tokens(tokens) <= len(tokens)


def test_records_are_counted_up_to_the_first_that_is_none() -> None:
    assert valid_records(f"{GOOD}\n{GOOD}\n", KEYS, count=5) == 2
    assert valid_records(f"{GOOD}\nnot json\n{GOOD}", KEYS, count=5) == 1
    assert valid_records('{"id": 7}\n', KEYS, count=5) == 0
    assert valid_records("[1, 2]", KEYS, count=5) == 0
    assert valid_records("\n".join([GOOD] * 9), KEYS, count=5) == 5


def test_every_second_token_doubled_breaks_records_and_prose_and_so_does_one_token_over_and_over() -> None:
    json_prompt = Prompt(item_id="json/00", task="json", text="", seed=0)
    prose_prompt = Prompt(item_id="prose/a", task="prose", text="", seed=0)

    def sound(prompt: Prompt, text: str, tokens: list[int]) -> float | None:
        return measurements_of(prompt, text, tokens, [])[0].value

    assert sound(json_prompt, "\n".join([GOOD] * 6), VARIED) == 1.0
    assert sound(json_prompt, "\n".join([GOOD.replace('"', '""')] * 6), VARIED) == 0.0
    assert sound(prose_prompt, "word " * 300, [17] * 300) == 0.0
    stammer = " ".join(f"{word} {word}" if number % 2 else word for number, word in enumerate(PROSE.split()))
    assert sound(prose_prompt, PROSE, VARIED) == 1.0
    assert sound(prose_prompt, stammer, VARIED) == 0.0
    assert sound(prose_prompt, "", []) == 0.0
    assert sound(prose_prompt, "a text", VARIED) == 1.0


def test_damage_from_token_400_on_shows_in_the_second_stretch_and_in_the_whole() -> None:
    prompt = Prompt(item_id="prose/a", task="prose", text="", seed=0)
    whole = Random(2).sample(range(50_000), 768)

    def sound(text: str, tokens: list[int]) -> dict[str, float | None]:
        rows = measurements_of(prompt, text, tokens, [(0, 256), (256, 512), (512, 768)])
        return {row.metric: row.value for row in rows if row.metric != "distinct_share"}

    def figures(*values: float) -> dict[str, float | None]:
        names = ("sound", "sound, tokens 0-256", "sound, tokens 256-512", "sound, tokens 512-768")
        return dict(zip(names, values, strict=True))

    doubled = [whole[n // 3 * 3 + min(n % 3, 1)] for n in range(768)]
    assert sound(PROSE, whole) == figures(1, 1, 1, 1)
    assert sound(PROSE, whole[:400] + [17] * 368) == figures(0, 1, 0, 0)
    assert sound(PROSE, whole[:400] + doubled[400:]) == figures(1, 1, 0, 0)  # its words are those of PROSE
    assert sound(PROSE, whole[:400]) == figures(1, 1, 1, 0)
    assert sound("\n ", whole) == figures(0, 0, 0, 0)


@pytest.mark.parametrize("kind", ["prose", "json", "tool_call"])
def test_the_same_probe_has_the_same_prompts_and_another_seed_has_others(kind: FreeText) -> None:
    def prompts(seed: int) -> list[Prompt]:
        probe = FreeDecodeProbe(probe="free_decode", prompts=3, decode_tokens=512, seed=seed, kinds=(kind,))
        return list(prompts_of(probe))

    assert prompts(1) == prompts(1) != prompts(2)
    assert [prompt.task for prompt in prompts(1)] == [kind] * 3


def test_kinds_come_in_the_order_of_the_suite() -> None:
    probe = FreeDecodeProbe(probe="free_decode", prompts=2, decode_tokens=256, kinds=("tool_call", "prose"))
    assert [prompt.task for prompt in prompts_of(probe)] == ["tool_call", "tool_call", "prose", "prose"]
