"""The operator's own prompts with their answers, as JSON lines: asked and scored as generated tasks are.

`prompts/NAME.jsonl` in the operator's folder of tasks; a line is `{"prompt": …, "answer": …}`, with an `id` of its own
if it has one. A prompt is text, or a list of chat messages (`role` and `content`) that the model's template writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from gatekeeper.domain.base import Closed
from gatekeeper.domain.errors import UnreadableInput
from gatekeeper.files import read_text
from workers.engines.errors import ProbeFailed
from workers.suites.context.draft import Draft, Message, Part
from workers.suites.context.items import Item, Tokenizer, write_item

FOLDER = "prompts"
LIMIT_BYTES = 256_000_000
Text = Annotated[str, Field(min_length=1)]


class Turn(Closed):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: Text


class Line(Closed):
    """One prompt and its answer. The answer's leading space is a part of it."""

    model_config = ConfigDict(str_strip_whitespace=False)

    prompt: Text | Annotated[tuple[Turn, ...], Field(min_length=1)]
    answer: Text
    id: Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[\w.:-]+$")] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptSet:
    """The first `count` lines of a set."""

    name: str
    count: int
    folder: Path | None

    def items(self, tokenizer: Tokenizer, *, longest: int) -> Iterator[Item]:
        """Every item. Raises ProbeFailed for a set that is missing, short, wrong, or longer than allowed."""
        seen: set[str] = set()
        for number, line in enumerate(self._lines()):
            item_id = f"{self.name}/{line.id or number}"
            if item_id in seen:
                raise ProbeFailed(f"{self.name}: the id {line.id!r} is there twice")
            seen.add(item_id)
            item = write_item(tokenizer, _draft(line), self.name, item_id)
            if item.context_tokens > longest:
                raise ProbeFailed(f"{item_id}: {item.context_tokens} tokens, {longest} are allowed")
            yield item

    def _lines(self) -> list[Line]:
        if self.folder is None:
            raise ProbeFailed(f"{self.name}: the operator has set no folder of tasks (GATEKEEPER_TASKS_DIR)")
        path = self.folder / FOLDER / f"{self.name}.jsonl"
        try:
            text = read_text(path, limit_bytes=LIMIT_BYTES)
        except UnreadableInput as error:
            raise ProbeFailed(error.detail) from error
        rows = [row for row in text.splitlines() if row.strip()]
        if len(rows) < self.count:
            raise ProbeFailed(f"{FOLDER}/{path.name} has {len(rows)} lines, the suite asks for {self.count}")
        return [_parse(row, path.name, number) for number, row in enumerate(rows[: self.count], start=1)]


def _parse(row: str, name: str, number: int) -> Line:
    try:
        return TypeAdapter(Line).validate_python(json.loads(row))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProbeFailed(f"{name}, line {number}: {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise ProbeFailed(f"{name}, line {number} is not JSON: {error}") from error


def _draft(line: Line) -> Draft:
    continuation = (Part(text=line.answer),)
    if isinstance(line.prompt, str):
        return Draft(prompt=line.prompt, continuation=continuation)
    turns = tuple(Message(role=turn.role, content=turn.content) for turn in line.prompt)
    return Draft(prompt=turns, continuation=continuation)
