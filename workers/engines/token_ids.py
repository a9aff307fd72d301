"""Tokens by their ids, as completions spell them on `return_tokens_as_token_ids`, in vLLM's form."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "token_id:"


def spelled(token: int) -> str:
    """A token as an answer has it."""
    return f"{PREFIX}{token}"


def token_id(spelling: str) -> int:
    """The id of a token that an answer has. Raises ValueError for anything else."""
    return int(spelling.removeprefix(PREFIX))
