"""From drafts to items: token ids of the model's own tokenizer, as long as was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final

import httpx

from workers.engines.base import Server
from workers.engines.errors import ProbeFailed, Unsupported
from workers.suites.context.draft import Draft, Message, Write
from workers.suites.dice import Dice

DRAWS: Final = 20
"""How many drafts of an item are tried, where its sentences happen to be too long for a short context."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """Token ids ready to be asked. `scored`: per forced token, whether it belongs to an answer.

    `question` and `answer`: the prompt and what is scored, as text.
    """

    item_id: str
    family: str
    prompt: tuple[int, ...]
    forced: tuple[int, ...]
    scored: tuple[bool, ...]
    question: str
    answer: str

    @property
    def context_tokens(self) -> int:
        """Tokens of the whole sequence, prompt and forced continuation."""
        return len(self.prompt) + len(self.forced)


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """The engine's own tokenizer, over its `/tokenize`. Raises Unsupported where that refuses."""

    server: Server
    _texts: dict[int, str] = field(default_factory=dict, repr=False)

    def text(self, text: str) -> list[int]:
        """Tokens of a completion's prompt, with what the model wants in front of it."""
        return self._tokens({"prompt": text})

    def chat(self, messages: Sequence[Message], reply: str) -> list[int]:
        """Tokens of a chat as the model's template writes it, with so much of the assistant's answer."""
        turns = [asdict(message) for message in messages]
        if not reply:
            return self._tokens({"messages": turns, "add_generation_prompt": True})
        turns.append({"role": "assistant", "content": reply})
        how = {"add_generation_prompt": False, "continue_final_message": True}
        return self._tokens({"messages": turns, **how})

    def token_text(self, token: int, *, after: int) -> str:
        """How a token reads behind another one, `after`; `#` and its id where the engine can't say.

        By itself a token may read otherwise: SentencePiece takes the space off the beginning of a text.
        """
        if token not in self._texts:
            alone, both = self._text([after]), self._text([after, token])
            self._texts[token] = f"#{token}" if alone is None or both is None else both.removeprefix(alone)
        return self._texts[token]

    def _text(self, tokens: Sequence[int]) -> str | None:
        try:
            body = {"model": self.server.plan.model.name, "tokens": list(tokens)}
            return str(self.server.post("/detokenize", body)["prompt"])
        except (httpx.HTTPStatusError, KeyError):
            return None

    def _tokens(self, body: dict[str, Any]) -> list[int]:
        try:
            answer: Any = self.server.post("/tokenize", {"model": self.server.plan.model.name, **body})
        except httpx.HTTPStatusError as error:
            raise Unsupported(error.response.text[:300]) from error
        tokens: list[int] = answer["tokens"]
        return tokens


def write_items(
    write: Write, family: str, tokenizer: Tokenizer, *, length: int, count: int, seed: int
) -> Iterator[Item]:
    """`count` items of a family with at most `length` tokens each, their facts spread evenly over the context.

    One that is too long with a single unit of context is drawn anew.
    Item ids read `family/length/depth/number`. Raises ProbeFailed if so few tokens do not hold the task.
    """
    size = 1
    for number in range(count):
        depth = (number + 0.5) / count
        item_id = f"{family}/{length}/{depth:.2f}/{number}"
        names = [f"{seed}/{item_id}", *(f"{seed}/{item_id}/{draw}" for draw in range(1, DRAWS))]
        drafts = [partial(_draft, write, name, depth) for name in names]
        fitting = (
            (draft, most)
            for draft in drafts
            if (most := largest_fit(partial(_count, tokenizer, draft), limit=length, guess=size))
        )
        draft, size = next(fitting, (drafts[0], 0))
        if not size:
            least = min(_count(tokenizer, draft, 1) for draft in drafts)
            raise ProbeFailed(f"{item_id}: {least} tokens at the least, {length} are allowed")
        yield write_item(tokenizer, draft(size), family, item_id)


def _draft(write: Write, name: str, depth: float, size: int) -> Draft:
    return write(Dice(name), size, depth)


def _count(tokenizer: Tokenizer, draft: Callable[[int], Draft], size: int) -> int:
    """Tokens of a draft of that size, prompt and answer."""
    return len(_sequence(tokenizer, draft(size)))


def largest_fit(count: Callable[[int], int], *, limit: int, guess: int) -> int:
    """The largest size from 1 on with count(size) <= limit, 0 if there is none; `count` ascends.

    Interpolates between the sizes tried so far, so that a good guess costs two or three counts.
    """
    counted = {0: 0}
    low, high = 0, None
    size = guess
    while high is None or high - low > 1:
        counted[size] = count(size)
        if counted[size] <= limit:
            low = size
        else:
            high = size
        size = _next_size(low, high, counted, limit)
    return low


def _next_size(low: int, high: int | None, counted: dict[int, int], limit: int) -> int:
    """Where a straight line through the last sizes reaches the limit, but strictly between the bounds."""
    if high is None:
        return low + max((limit - counted[low]) * low // max(counted[low], 1), 1)
    step = (limit - counted[low]) * (high - low) // (counted[high] - counted[low])
    return min(max(low + step, low + 1), max(high - 1, low + 1))


def _sequence(tokenizer: Tokenizer, draft: Draft, parts: int | None = None) -> list[int]:
    """The tokens of the prompt with the first `parts` parts of its continuation, or all."""
    said = "".join(part.text for part in draft.continuation[:parts])
    if isinstance(draft.prompt, str):
        return tokenizer.text(draft.prompt + said)
    return tokenizer.chat(draft.prompt, said)


def write_item(tokenizer: Tokenizer, draft: Draft, family: str, item_id: str) -> Item:
    """Cut the whole sequence where the tokens of its beginnings end: text does not tokenize piece by piece."""
    whole = _sequence(tokenizer, draft)
    cuts = [_common(_sequence(tokenizer, draft, parts), whole) for parts in range(len(draft.continuation))]
    spans = pairwise([*cuts, len(whole)])
    scored = [
        part.scored
        for part, (start, end) in zip(draft.continuation, spans, strict=True)
        for _ in range(start, end)
    ]
    return Item(
        item_id=item_id, family=family, prompt=tuple(whole[: cuts[0]]), forced=tuple(whole[cuts[0] :]),
        scored=tuple(scored), question=draft.question, answer=draft.answer,
    )  # fmt: skip


def _common(beginning: Sequence[int], whole: Sequence[int]) -> int:
    """How many leading tokens are the same."""
    differing = (
        index for index, (one, other) in enumerate(zip(beginning, whole, strict=False)) if one != other
    )
    return next(differing, min(len(beginning), len(whole)))
