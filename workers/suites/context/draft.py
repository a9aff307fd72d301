"""What a family of tasks writes: a prompt, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from workers.suites.dice import Dice


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A stretch of the forced continuation; only scored ones count."""

    text: str
    scored: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A prompt, as text or as a chat that the assistant is to answer, and the continuation that is forced after it."""

    prompt: str | tuple[Message, ...]
    continuation: tuple[Part, ...]

    @property
    def question(self) -> str:
        """The prompt as text; a chat has a line in front of each turn that says whose it is."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n".join(f"{turn.role}:\n{turn.content}" for turn in self.prompt)

    @property
    def answer(self) -> str:
        """What is scored."""
        return "".join(part.text for part in self.continuation if part.scored)


def in_turn(context: str, questions: Sequence[tuple[str, str]]) -> Draft:
    """A draft that asks one question after the other; each is a lead, forced unscored, and its answer.

    The first lead is part of the prompt.
    """
    (first_lead, first_answer), *others = questions
    parts = [Part(text=first_answer)]
    for lead, answer in others:
        parts += [Part(text=lead, scored=False), Part(text=answer)]
    return Draft(prompt=context + first_lead, continuation=tuple(parts))


Write: TypeAlias = Callable[[Dice, int, float], Draft]
"""(dice, size, depth) -> draft, a pure function.

`size`: how many units of context (sentences, pairs, turns) surround what is asked, at least 1; one more unit makes the
draft longer and changes nothing else. `depth`: where in the context the asked fact stands, 0 its start, 1 its end.
"""
