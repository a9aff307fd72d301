"""Reads and writes the parts of a completion that suites look at. Pure functions on the answer's JSON.

A completion shows distributions in two shapes: `logprobs`, three parallel lists, which cover the prompt too if the
request says `echo`, and `prompt_logprobs`, one table per prompt token, its own first. An answer and a chunk of a
streamed one have the same choices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.damage import Place, Row

Choice = Mapping[str, Any]
Change = Callable[[Place, Row], Row]
"""What becomes of a row: the same tokens, best first."""

TOKEN_ID = "token_id:"
_WORD = re.compile(r"\s*\S+|\s+$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How a choice's lists lie: `offset` tokens were decoded in earlier chunks; the prompt is there if `echoed`.

    `forced`: the decoded tokens were given by the request, so damage shows in their probabilities and not in the text.
    """

    prompt_tokens: int
    echoed: bool = False
    forced: bool = False
    offset: int = 0

    def place(self, index: int) -> Place:
        """The place of list index `index`."""
        decoded = self.offset + index - (self.prompt_tokens if self.echoed else 0)
        return Place(context=self.prompt_tokens + decoded, decoded=decoded if decoded >= 0 else None)

    def given(self, place: Place) -> bool:
        """Whether the token there was the request's and not the engine's choice."""
        return self.forced or place.decoded is None

    def decoded_tokens(self, choice: Choice) -> int:
        """How many tokens the choice decodes; a chunk that does not list its tokens holds one."""
        logprobs = choice.get("logprobs")
        if not logprobs:
            return 1
        return len(logprobs["tokens"]) - (self.prompt_tokens if self.echoed else 0)


def changed(choice: Choice, change: Change, layout: Layout) -> Choice:
    """The choice with every row of its distributions changed.

    A decoded token that was not given becomes the changed row's best, and the text follows.
    """
    return _changed_prompt_logprobs(_changed_logprobs(choice, change, layout), change)


def _changed_logprobs(choice: Choice, change: Change, layout: Layout) -> Choice:
    """The prompt's first token has no distribution."""
    logprobs = choice.get("logprobs")
    if not logprobs:
        return choice
    columns = logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]
    tokens, values, tops = [], [], []
    for index, (token, value, top) in enumerate(zip(*columns, strict=True)):
        place = layout.place(index)
        row = None if value is None else change(place, {**top, token: value})
        chosen = token if row is None or layout.given(place) else next(iter(row))
        tokens.append(chosen)
        values.append(None if row is None else row[chosen])
        tops.append(None if row is None else {token: row[token] for token in row if token in top})
    written = {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops}
    spelled = not any(token.startswith(TOKEN_ID) for token in tokens)
    text = "".join(tokens) if spelled and not (layout.forced or layout.echoed) else choice["text"]
    return {**choice, "text": text, "logprobs": {**logprobs, **written}}


def _changed_prompt_logprobs(choice: Choice, change: Change) -> Choice:
    tables = choice.get("prompt_logprobs")
    if not tables:
        return choice
    places = (Place(context=index, decoded=None) for index in range(len(tables)))
    new = [
        table and _changed_table(table, place, change) for table, place in zip(tables, places, strict=True)
    ]
    return {**choice, "prompt_logprobs": new}


def _changed_table(table: Mapping[str, Any], place: Place, change: Change) -> dict[str, Any]:
    """A prompt token's table, in its order. A rank beyond the table stays what it was: nothing shows the new one."""
    row = change(place, {token: entry["logprob"] for token, entry in table.items()})
    ranks = {token: rank for rank, token in enumerate(row, start=1)}
    return {
        token: {
            **entry,
            "logprob": row[token],
            "rank": ranks[token] if (rank := entry.get("rank", 0)) <= len(table) else rank,
        }
        for token, entry in table.items()
    }


def pieces(choice: Choice) -> Sequence[str]:
    """The tokens that make up a choice's text, or its words where the answer does not spell its tokens."""
    tokens: list[str] = (choice.get("logprobs") or {}).get("tokens") or []
    if tokens and "".join(tokens) == choice["text"]:
        return tokens
    return _WORD.findall(choice["text"])
