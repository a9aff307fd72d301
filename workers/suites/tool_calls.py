"""Prompts that ask for tool calls, and whether what came back are calls of those tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, TypeAlias

ArgumentType: TypeAlias = Literal["string", "integer", "number", "boolean"]
PYTHON_TYPES: Final[Mapping[ArgumentType, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
"""JSON Schema's names of types, and what `json.loads` makes of their values."""
CALL: Final = "Call:"
REQUEST: Final = "Request:"
EXAMPLES_PER_TOOL: Final = 2
TOOLS_PER_PROMPT: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool with the types of its arguments, all of them required, and a request that asks for it.

    `request` names arguments in braces; `values` are what each may be.
    """

    arguments: Mapping[str, ArgumentType]
    request: str
    values: Mapping[str, tuple[object, ...]]


CITIES: Final = ("Oslo", "Lima", "Cairo", "Turin", "Osaka", "Quito", "Leeds", "Accra")
NAMES: Final = ("Anna", "Ravi", "Sofia", "Tom", "Mei", "Omar", "Lena", "Hugo")
TOOLS: Final[Mapping[str, Tool]] = {
    "get_weather": Tool(
        arguments={"city": "string", "days": "integer"},
        request="What will the weather be like in {city} for the next {days} days?",
        values={"city": CITIES, "days": (2, 3, 4, 5, 6, 7)},
    ),
    "set_timer": Tool(
        arguments={"minutes": "integer", "label": "string"},
        request="Set a timer of {minutes} minutes for the {label}.",
        values={"minutes": (5, 8, 12, 15, 20, 25, 40), "label": ("rice", "tea", "bread", "laundry", "soup")},
    ),
    "send_message": Tool(
        arguments={"to": "string", "text": "string"},
        request='Tell {to}: "{text}".',
        values={"to": NAMES, "text": ("I am late", "Call me", "Dinner is ready", "See you soon")},
    ),
    "set_light": Tool(
        arguments={"room": "string", "on": "boolean"},
        request="Light in the {room}, on: {on}.",
        values={"room": ("kitchen", "hall", "cellar", "garage", "attic"), "on": (True, False)},
    ),
    "pay": Tool(
        arguments={"to": "string", "amount": "number"},
        request="Pay {amount} to {to}.",
        values={"to": NAMES, "amount": (4.5, 12.25, 19.9, 7.75, 30.5, 8.4)},
    ),
}


def tool_prompt(rng: Random) -> str:
    """Descriptions of some tools, requests with the calls that answer them, and one request that is still open."""
    names = rng.sample(sorted(TOOLS), TOOLS_PER_PROMPT)
    described = [json.dumps({"name": name, "arguments": dict(TOOLS[name].arguments)}) for name in names]
    shown = names * EXAMPLES_PER_TOOL
    rng.shuffle(shown)
    answered = [line for name in shown for line in _exchange(rng, name)]
    asked, _ = _exchange(rng, rng.choice(names))
    return "\n".join(["Tools:", *described, "", *answered, asked, CALL])


def _exchange(rng: Random, name: str) -> tuple[str, str]:
    """A request in words, and its call."""
    tool = TOOLS[name]
    chosen = {key: rng.choice(values) for key, values in tool.values.items()}
    call = json.dumps({"name": name, "arguments": {key: chosen[key] for key in tool.arguments}})
    return f"{REQUEST} {tool.request.format(**chosen)}", f"{CALL} {call}"


def valid_calls(text: str, *, count: int) -> int:
    """How many of the first `count` calls of a continuation are valid, up to the first that is not.

    `text` goes on right after `CALL`, so its first call stands at its beginning; later ones follow `CALL` on lines of
    their own.
    """
    lines = (CALL + text).splitlines()
    calls = [line.removeprefix(CALL) for line in lines if line.startswith(CALL)][:count]
    return next((number for number, call in enumerate(calls) if not is_call(call)), len(calls))


def is_call(text: str) -> bool:
    """Whether this is a JSON object that names a known tool, with exactly its arguments, each of the right type."""
    try:
        call = json.loads(text)
    except ValueError:
        return False
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        return False
    name, arguments = call["name"], call["arguments"]
    if not isinstance(name, str) or name not in TOOLS or not isinstance(arguments, dict):
        return False
    types = TOOLS[name].arguments
    return arguments.keys() == types.keys() and all(
        _has_type(value, types[key]) for key, value in arguments.items()
    )


def _has_type(value: object, wanted: ArgumentType) -> bool:
    """JSON Schema's idea of types: `true` is no number."""
    return isinstance(value, PYTHON_TYPES[wanted]) and isinstance(value, bool) == (wanted == "boolean")
