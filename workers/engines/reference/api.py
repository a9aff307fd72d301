"""The part of the OpenAI-compatible API, with vLLM's additions, that suites use: request bodies and answers."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from workers.engines.reference.runner import Scored

MAX_LOGPROBS: Final = 20


class StreamOptions(BaseModel):
    """How a stream ends."""

    include_usage: bool = False


class Common(BaseModel):
    """What both kinds of completion take. Fields that are not known are passed over, as vLLM does."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    max_tokens: int | None = Field(default=None, ge=0)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = 0
    seed: int | None = None
    n: int = Field(default=1, ge=1, le=1)
    stop: str | list[str] | None = None
    stop_token_ids: list[int] = Field(default_factory=list)
    ignore_eos: bool = False
    min_tokens: int = Field(default=0, ge=0)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    return_tokens_as_token_ids: bool = False
    cache_salt: str | None = Field(default=None, min_length=1)
    vllm_xargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the answer and are not part of it."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class CompletionRequest(Common):
    """A body of `/v1/completions`."""

    prompt: str | list[int] | list[str] | list[list[int]]
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    echo: bool = False


class Message(BaseModel):
    """One turn of a chat."""

    role: str
    content: str


class ChatRequest(Common):
    """A body of `/v1/chat/completions`."""

    messages: list[Message]
    max_completion_tokens: int | None = Field(default=None, ge=0)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=MAX_LOGPROBS)


class TokenizeRequest(BaseModel):
    """A body of `/tokenize`: a text, or a chat."""

    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class DetokenizeRequest(BaseModel):
    """A body of `/detokenize`."""

    tokens: list[int]


Name = Callable[[int], str]
"""How a token is written in an answer."""


def completion_logprobs(rows: Sequence[Scored | None], name: Name) -> dict[str, Any]:
    """The `logprobs` of a completion. None: a prompt's first token, which nothing predicts."""
    return {
        "tokens": [name(row.token) for row in rows if row is not None],
        "token_logprobs": [row and row.logprob for row in rows],
        "top_logprobs": [row and _row(row, name) for row in rows],
        "text_offset": [],
    }


def _row(row: Scored, name: Name) -> dict[str, float]:
    """The best tokens, and the chosen one where it is not among them."""
    return {name(token): value for token, value in (*row.top, (row.token, row.logprob))}


def prompt_logprobs(rows: Sequence[Scored], name: Name) -> list[dict[str, dict[str, Any]] | None]:
    """vLLM's `prompt_logprobs`: by token id, nothing for the first token."""
    entries: list[dict[str, dict[str, Any]] | None] = [None]
    for row in rows:
        ranked = [(token, value, rank) for rank, (token, value) in enumerate(row.top, start=1)]
        entries.append(
            {
                str(token): {"logprob": value, "rank": rank, "decoded_token": name(token)}
                for token, value, rank in (*ranked, (row.token, row.logprob, row.rank))
            }
        )
    return entries


def chat_logprobs(rows: Sequence[Scored], name: Name) -> dict[str, Any]:
    """The `logprobs` of a chat completion."""

    def entry(token: int, value: float) -> dict[str, Any]:
        return {"token": name(token), "logprob": value, "bytes": list(name(token).encode())}

    content = [
        entry(row.token, row.logprob) | {"top_logprobs": [entry(*pair) for pair in row.top]} for row in rows
    ]
    return {"content": content}


def envelope(
    kind: str, model: str, choices: Sequence[Mapping[str, Any]], usage: Mapping[str, int] | None
) -> dict[str, Any]:
    """What every answer is wrapped in. `kind`: `text_completion`, `chat.completion` or `chat.completion.chunk`."""
    body = {"id": f"cmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}
    return body | {"choices": list(choices)} | ({} if usage is None else {"usage": dict(usage)})


def usage_of(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Counts of tokens."""
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def events(chunks: Iterator[Mapping[str, Any]]) -> Iterator[str]:
    """Server-sent events, with OpenAI's end mark."""
    for chunk in chunks:
        yield f"data: {json.dumps(chunk, allow_nan=False)}\n\n"
    yield "data: [DONE]\n\n"
