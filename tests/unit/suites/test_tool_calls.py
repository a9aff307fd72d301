"""Which continuations are valid tool calls, and what the prompts look like."""

from random import Random

import pytest

from workers.suites.free_decode import CALLS, Prompt, measurements_of
from workers.suites.tool_calls import CALL, REQUEST, TOOLS, is_call, tool_prompt, valid_calls

WEATHER = ' {"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}'
LIGHT = ' {"name": "set_light", "arguments": {"on": true, "room": "hall"}}'
PAY = ' {"name": "pay", "arguments": {"to": "Mei", "amount": 12}}'


def continuation(*calls: str) -> str:
    return "\nRequest: And now?\nCall:".join(calls) + "\nRequest: Wh"


@pytest.mark.parametrize("call", [WEATHER, LIGHT, PAY, PAY.replace("12", "12.25")])
def test_a_call_of_a_known_tool_with_its_arguments_is_valid(call: str) -> None:
    assert is_call(call)


@pytest.mark.parametrize(
    "call",
    [
        "",
        " the weather in Oslo",
        WEATHER[:-1],
        WEATHER.replace('"name"', '""name"'),
        WEATHER.replace("get_weather", "get_wether"),
        WEATHER.replace('"get_weather"', '["get_weather"]'),
        WEATHER.replace(', "days": 3', ""),
        WEATHER.replace('"days": 3', '"days": 3, "unit": "C"'),
        WEATHER.replace("3", '"3"'),
        WEATHER.replace("3", "3.5"),
        WEATHER.replace("3", "true"),
        WEATHER.replace('"Oslo"', "null"),
        LIGHT.replace("true", "1"),
        PAY.replace("12", "false"),
        ' {"name": "pay", "arguments": ["Mei", 12]}',
        ' {"name": "pay"}',
        ' ["pay"]',
    ],
)
def test_what_the_schema_of_the_tool_does_not_allow_is_no_call(call: str) -> None:
    assert not is_call(call)


def test_calls_are_counted_up_to_the_first_that_is_none() -> None:
    assert valid_calls(continuation(WEATHER, LIGHT, PAY), count=3) == 3
    assert valid_calls(continuation(WEATHER, LIGHT, PAY), count=2) == 2
    assert valid_calls(continuation(WEATHER, LIGHT, PAY), count=4) == 3
    assert valid_calls(continuation(WEATHER, "oops", PAY), count=3) == 1
    assert valid_calls(continuation("oops", LIGHT, PAY), count=3) == 0
    assert valid_calls("", count=3) == 0


def test_an_answer_is_sound_if_its_first_calls_are_valid_and_whatever_comes_later() -> None:
    prompt = Prompt(item_id="tool_call/00", task="tool_call", text="", seed=0)

    def sound(*calls: str) -> float | None:
        (measured,) = measurements_of(prompt, continuation(*calls), [1, 2, 3], [(0, 256)])
        assert (measured.metric, measured.cluster) == ("sound", "tool_call")
        return measured.value

    assert sound(*[WEATHER] * CALLS) == 1.0
    assert sound(*[WEATHER] * CALLS, "oops") == 1.0
    assert sound(*[WEATHER] * (CALLS - 1), "oops") == 0.0
    assert sound(*[WEATHER] * (CALLS - 1)) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_a_prompt_shows_valid_calls_of_every_tool_it_describes_and_ends_with_an_open_request(
    seed: int,
) -> None:
    text = tool_prompt(Random(seed))
    described, _, shown = text.partition("\n\n")
    *answered, asked, opened = shown.splitlines()
    calls = [line for line in answered if line.startswith(CALL)]
    assert [is_call(call.removeprefix(CALL)) for call in calls] == [True] * 6
    for name in (name for name in TOOLS if f'"{name}"' in described):
        assert sum(f'"{name}"' in call for call in calls) == 2
    assert asked.startswith(REQUEST)
    assert opened == CALL
