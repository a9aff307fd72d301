"""The probe that measures speed: which loads, how many rounds, and whether engines take turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gatekeeper.domain.base import Closed, NonNegativeInt, PositiveInt
from gatekeeper.domain.lengths import check_distinct, lengths_of
from gatekeeper.domain.measurement import Mode


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """One kind of request of a performance probe. `prefix_tokens` of its prompt are the same in all of a round.

    `mode`: warm where prompts share a prefix, since an engine that reuses prefixes computes it once.
    """

    mode: Mode
    input_tokens: int
    prefix_tokens: int = 0


class Turns(Closed):
    """Candidate and baseline take turns, each launched anew for it: `launches` pairs at most, `rounds` in each.

    The candidate's pairs end as soon as every rule on speed is decided; those of the control launch, which measure the
    noise, are all run.
    """

    launches: Annotated[int, Field(ge=1, le=8, strict=True)]


class PerformanceProbe(Closed):
    """vLLM's serving benchmark on random prompts; the first round of every launch warms up and is thrown away.

    `input_tokens`: the length of a prompt, or several, each a load of its own in every round. `shared_prefix_tokens`:
    one more load, whose prompts begin with so many tokens that are the same in all of a round, and go on with as many
    as the shortest of `input_tokens`. Without `turns` each arm runs its rounds in its own launch, alone.
    """

    probe: Literal["performance"]
    prompts: PositiveInt
    input_tokens: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=4)]
    output_tokens: PositiveInt
    shared_prefix_tokens: NonNegativeInt = 0
    rounds: Annotated[int, Field(ge=2, strict=True)]
    turns: Turns | None = None
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _distinct_lengths(self) -> Self:
        check_distinct("input_tokens", self.input_lengths)
        return self

    @property
    def input_lengths(self) -> tuple[int, ...]:
        """The lengths of prompts, as given."""
        return lengths_of(self.input_tokens)

    @property
    def loads(self) -> tuple[Load, ...]:
        """What every round consists of, one after the other."""
        cold = tuple(Load(mode="cold", input_tokens=length) for length in self.input_lengths)
        if not self.shared_prefix_tokens:
            return cold
        prefix, shortest = self.shared_prefix_tokens, min(self.input_lengths)
        return (*cold, Load(mode="warm", input_tokens=prefix + shortest, prefix_tokens=prefix))
