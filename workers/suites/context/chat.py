"""A chat with a system prompt: what the user said in one turn is asked in the last one."""

from __future__ import annotations

from typing import Final

from workers.suites.context.draft import Draft, Message, Part
from workers.suites.context.haystack import haystack
from workers.suites.context.words import CITIES, NAMES
from workers.suites.dice import Dice

SYSTEM: Final = "You are a helpful assistant who remembers everything that the user says."


def chat(dice: Dice, size: int, depth: float) -> Draft:
    """`size` turns of small talk, and a turn about where a friend lives at `depth`."""
    friend, city = dice.choose(NAMES), dice.choose(CITIES)
    turns = [(sentence, "Thank you for telling me.") for sentence in haystack(dice, size)]
    turns.insert(round(depth * size), (f"My friend {friend} lives in {city}.", "I will remember that."))
    question = f"Where does my friend {friend} live?"
    return Draft(
        prompt=(
            Message(role="system", content=SYSTEM),
            *(message for said, reply in turns for message in _turn(said, reply)),
            Message(role="user", content=question),
        ),
        continuation=(Part(text=f"Your friend {friend} lives in", scored=False), Part(text=f" {city}")),
    )


def _turn(said: str, reply: str) -> tuple[Message, Message]:
    return Message(role="user", content=said), Message(role="assistant", content=reply)
