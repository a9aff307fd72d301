"""The texts that teacher-forced decoding runs along, cut into prompt and reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from workers.engines.base import Server
from workers.engines.errors import ProbeFailed


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A text cut into prompt and reference, as token ids. `cluster`: the text that the reference belongs to."""

    item_id: str
    cluster: str
    prompt: tuple[int, ...]
    reference: tuple[int, ...]


def load_documents(
    server: Server, *, documents: int, context_tokens: int | Sequence[int], decode_tokens: int
) -> list[Document]:
    """The first bundled texts, tokenized by the engine.

    `context_tokens`: of all, or of each in turn. A text that is too short goes on with the next ones. Raises
    ProbeFailed if all of them together are too short.
    """
    texts = [(name, _tokenize(server, text)) for name, text in bundled_texts(documents)]
    lengths = [context_tokens] * documents if isinstance(context_tokens, int) else context_tokens
    return [
        cut(texts, number, context_tokens=length, decode_tokens=decode_tokens)
        for number, length in zip(range(len(texts)), lengths, strict=False)
    ]


def load_at_lengths(
    server: Server, *, documents: int, context_lengths: Sequence[int], decode_tokens: int
) -> list[list[Document]]:
    """By text, one document per length, the longest first: the same reference after the last so many tokens before it.

    With one length these are the documents of `load_documents`. Errors as there.
    """
    longest_first = sorted(context_lengths, reverse=True)
    whole = load_documents(
        server, documents=documents, context_tokens=longest_first[0], decode_tokens=decode_tokens
    )
    if len(longest_first) == 1:
        return [[document] for document in whole]
    return [
        [
            replace(document, item_id=f"{document.item_id}/{length}", prompt=document.prompt[-length:])
            for length in longest_first
        ]
        for document in whole
    ]


def bundled_texts(count: int | None = None) -> list[tuple[str, str]]:
    """Name and content of the first texts, or of all, in the order of their names."""
    folder = resources.files("workers.suites").joinpath("texts")
    files = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".txt")), key=lambda entry: entry.name
    )
    return [(entry.name.removesuffix(".txt"), entry.read_text(encoding="utf-8")) for entry in files[:count]]


def cut(
    texts: Sequence[tuple[str, list[int]]], number: int, *, context_tokens: int, decode_tokens: int
) -> Document:
    needed, tokens = context_tokens + decode_tokens, list[int]()
    for offset in range(len(texts)):
        if len(tokens) >= needed:
            break
        tokens += texts[(number + offset) % len(texts)][1]
    if len(tokens) < needed:
        raise ProbeFailed(f"{len(texts)} texts have {len(tokens)} tokens together, {needed} are needed")
    return Document(
        item_id=texts[number][0],
        cluster=texts[number][0],
        prompt=tuple(tokens[:context_tokens]),
        reference=tuple(tokens[context_tokens:needed]),
    )


def _tokenize(server: Server, text: str) -> list[int]:
    body = {"model": server.plan.model.name, "prompt": text, "add_special_tokens": False}
    answer: Any = server.post("/tokenize", body)
    tokens: list[int] = answer["tokens"]
    return tokens
