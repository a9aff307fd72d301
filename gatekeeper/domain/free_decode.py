"""The probe that lets a model write freely: the kinds of text, their number, and the stretches they are judged by."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from gatekeeper.domain.base import Closed, NonNegativeInt

FREE_PROMPT_TOKENS: Final = 384
"""No prompt of the free decoding is longer."""
STRETCH_TOKENS: Final = 256
"""Free text is judged as a whole, and by stretches of so many decoded tokens."""

FreeText = Literal["prose", "json", "tool_call"]
"""The kinds of text that a model goes on with freely."""


class FreeDecodeProbe(Closed):
    """Long free decoding of `prompts` texts of each kind, sampled with a seed per item."""

    probe: Literal["free_decode"]
    kinds: Annotated[tuple[FreeText, ...], Field(min_length=1)] = ("prose", "json")
    prompts: Annotated[int, Field(ge=2, le=32, strict=True)]
    decode_tokens: Annotated[int, Field(ge=256, strict=True)]
    seed: NonNegativeInt = 0
    batches: Literal[1] = 1

    @model_validator(mode="after")
    def _distinct_kinds(self) -> Self:
        if len(set(self.kinds)) < len(self.kinds):
            raise ValueError("kinds: an entry is there twice")
        return self

    @property
    def items(self) -> dict[str, int]:
        """By kind of text, the number of items that will be measured."""
        return {str(kind): self.prompts for kind in sorted(self.kinds)}

    @property
    def in_flight(self) -> int:
        """The most items that are in flight together, which are all."""
        return sum(self.items.values())

    @property
    def stretches(self) -> tuple[tuple[int, int], ...]:
        """The decode in ranges [start, end) of STRETCH_TOKENS tokens; the last one has what is left over, too."""
        starts = range(0, self.decode_tokens - STRETCH_TOKENS + 1, STRETCH_TOKENS)
        return tuple(zip(starts, (*starts[1:], self.decode_tokens), strict=True))
