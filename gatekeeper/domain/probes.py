"""Probes: what a suite can ask of an engine, each with its sizes and seed."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self, assert_never, get_args

from pydantic import Field, model_validator

from gatekeeper.domain.base import LARGEST, Closed, NonNegativeInt, Number, PositiveInt
from gatekeeper.domain.change import Name
from gatekeeper.domain.free_decode import FreeDecodeProbe
from gatekeeper.domain.item_order import largest_batch
from gatekeeper.domain.lengths import check_distinct, lengths_of
from gatekeeper.domain.policy import check_task_names
from gatekeeper.domain.speed_probe import PerformanceProbe

ProbedMode = Literal["first_batch", "boundary", "chunked", "greedy", "prefill"]
PROBED_MODES: Final = get_args(ProbedMode)
BLOCK_MULTIPLE: Final = 128
"""A multiple of every usual size of a cache block, so that one length is a boundary in both arms."""
CHUNKS: Final = 3
"""Pieces of a prompt in `chunked` mode: the first and the last are special, so there must be one between."""

Batches = Annotated[int, Field(ge=1, le=20, strict=True)]
ContextLength = Annotated[int, Field(ge=256, le=LARGEST, strict=True)]
"""Tokens of a whole sequence; fewer than 256 leave no room around what is asked."""

SetName = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
"""Names a file, so it has no dots and slashes."""

ContextLengths = PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=6)]
"""One length in tokens, or several different ones."""

Family = Literal["needle", "multi_needle", "lookup", "multi_hop", "frequent", "two_questions", "chat", "copy"]
"""The kinds of retrieval tasks; `workers/suites/context/` writes them."""


class AccuracyProbe(Closed):
    """lm-eval tasks over the completions API. `items_per_task` takes a seeded subset; absent means all.

    `batches`: after each of so many parts a suite with `stop_early` looks whether the rest is needed. Bundled tasks
    only; others are one part.
    `expected_items`: how many items a whole task has, `choices`: the fewest requests that an item of any of them makes,
    one per choice, and `tokens_per_request`: their mean length. All three are for what is said before a run and change
    nothing that is measured.
    """

    probe: Literal["accuracy"]
    tasks: Annotated[tuple[Name, ...], Field(min_length=1)]
    items_per_task: PositiveInt | None = None
    seed: NonNegativeInt = 0
    batches: Batches = 1
    expected_items: dict[Name, PositiveInt] = Field(default_factory=dict)
    choices: PositiveInt = 1
    tokens_per_request: PositiveInt | None = None

    @model_validator(mode="after")
    def _tasks_can_be_told_from_groups(self) -> Self:
        check_task_names(self.tasks)
        return self

    @property
    def items(self) -> dict[str, int | None]:
        """By task, the number of items that will be measured; None: unknown."""
        return {task: self._taken(self.expected_items.get(task)) for task in self.tasks}

    @property
    def in_flight(self) -> int | None:
        """Requests that are in flight together, at least: lm-eval sends those of one batch; None: unknown."""
        counts = [count for count in self.items.values() if count is not None]
        if len(counts) < len(self.items):
            return None
        return self.choices * largest_batch(sum(counts), self.batches)

    def _taken(self, size: int | None) -> int | None:
        return size if size is None or self.items_per_task is None else min(size, self.items_per_task)


class FidelityProbe(Closed):
    """Teacher-forced decode: `context_tokens` of a document, then `decode_tokens` more, each forced and scored.

    Of several lengths every document is scored at each, the same tokens after the last so many before them, so that
    the context alone differs. `batches`: as for accuracy, in documents.
    """

    probe: Literal["fidelity"]
    documents: Annotated[int, Field(ge=2, le=32, strict=True)]
    context_tokens: ContextLengths
    decode_tokens: PositiveInt
    top_k: Annotated[int, Field(ge=2, le=20, strict=True)] = 20
    batches: Batches = 1

    @model_validator(mode="after")
    def _distinct_lengths(self) -> Self:
        check_distinct("context_tokens", self.context_lengths)
        return self

    @property
    def context_lengths(self) -> tuple[int, ...]:
        """The lengths of contexts, as given."""
        return lengths_of(self.context_tokens)

    @property
    def longest_context(self) -> int:
        """Tokens of the longest prompt."""
        return max(self.context_lengths)

    @property
    def sequences(self) -> int:
        """Documents times lengths: what is scored in every state of the cache."""
        return self.documents * len(self.context_lengths)

    @property
    def longest_in_flight(self) -> int:
        """Of several contexts, documents of the longest in flight together: in a batch, length follows length."""
        return largest_batch(self.documents, self.batches)


class ModesProbe(Closed):
    """Teacher-forced decode as in `fidelity`, in other states of the engine; every one is judged by itself.

    `chunked_context_tokens`: the context in `chunked` mode, which applies to changes whose chunks are so small that it
    takes three or more.
    """

    probe: Literal["modes"]
    modes: Annotated[tuple[ProbedMode, ...], Field(min_length=1)]
    documents: Annotated[int, Field(ge=2, le=32, strict=True)]
    context_tokens: Annotated[int, Field(gt=BLOCK_MULTIPLE, le=1_000_000, strict=True)]
    decode_tokens: PositiveInt
    chunked_context_tokens: PositiveInt = 1536
    top_k: Annotated[int, Field(ge=2, le=20, strict=True)] = 20

    @property
    def longest_context(self) -> int:
        """Tokens of the longest prompt."""
        return max(self.context_tokens, self.chunked_context_tokens if "chunked" in self.modes else 0)

    def context_lengths_in(self, mode: ProbedMode) -> tuple[int, ...]:
        """Tokens of the prompts in a mode: around a whole number of blocks at its boundary, else one length."""
        match mode:
            case "boundary":
                whole = self.context_tokens // BLOCK_MULTIPLE * BLOCK_MULTIPLE
                return whole - 1, whole, whole + 1
            case "chunked":
                return (self.chunked_context_tokens,)
            case "first_batch" | "greedy" | "prefill":
                return (self.context_tokens,)
            case _:
                assert_never(mode)


class SaturatedProbe(Closed):
    """Teacher-forced decode by an engine of its own whose pool holds `pool_share` of what its requests need at once.

    Sequences should outgrow a block in the middle of their decode: an engine that reads prompts piece by piece admits
    the later ones only then, and those that grow no more never want for room.
    """

    probe: Literal["saturated"]
    documents: Annotated[int, Field(ge=2, le=32, strict=True)]
    context_tokens: PositiveInt
    decode_tokens: PositiveInt
    pool_share: Annotated[Number, Field(gt=0, lt=1)] = 0.5
    top_k: Annotated[int, Field(ge=2, le=20, strict=True)] = 20


class RetrievalProbe(Closed):
    """Generated tasks whose answer only the context holds, at given lengths; docs/suites.md describes the families.

    `context_tokens`: tokens of prompt and answer together, by the model's own tokenizer, reached or just missed.
    `items_per_cell`: items of each family at each length, their facts spread evenly over the context.
    `prompt_sets`: the operator's own prompts by name of their file, and how many of each; none is longer than the
    longest of `context_tokens`.
    """

    probe: Literal["retrieval"]
    families: Annotated[tuple[Family, ...], Field(min_length=1)]
    context_tokens: Annotated[tuple[ContextLength, ...], Field(min_length=1)]
    items_per_cell: Annotated[int, Field(ge=1, le=1_000, strict=True)]
    prompt_sets: dict[SetName, Annotated[int, Field(ge=1, le=10_000, strict=True)]] = Field(
        default_factory=dict
    )
    seed: NonNegativeInt = 0
    batches: Batches = 1

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        for field, values in (("families", self.families), ("context_tokens", self.context_tokens)):
            if len(set(values)) < len(values):
                raise ValueError(f"{field}: an entry is there twice")
        taken = sorted(set(self.prompt_sets) & set(get_args(Family)))
        if taken:
            raise ValueError(f"prompt_sets: {', '.join(taken)} is the name of a family")
        check_task_names(self.prompt_sets)
        return self

    @property
    def items(self) -> dict[str, int]:
        """By family and prompt set, the number of items that will be measured."""
        cells = len(self.context_tokens) * self.items_per_cell
        return {**{str(family): cells for family in self.families}, **self.prompt_sets}

    def items_between(self, start: int, end: int) -> int:
        """The number of items whose length is asked for in [start, end); of prompt sets no length is known."""
        lengths = [length for length in self.context_tokens if start <= length < end]
        return len(self.families) * self.items_per_cell * len(lengths)

    @property
    def tokens(self) -> int:
        """Tokens of all items together, at most."""
        own = sum(self.prompt_sets.values()) * max(self.context_tokens)
        return len(self.families) * self.items_per_cell * sum(self.context_tokens) + own


class CapacityProbe(Closed):
    """The size of the KV pool that the engine reports."""

    probe: Literal["capacity"]


Probe = Annotated[
    AccuracyProbe
    | FidelityProbe
    | ModesProbe
    | SaturatedProbe
    | FreeDecodeProbe
    | RetrievalProbe
    | PerformanceProbe
    | CapacityProbe,
    Field(discriminator="probe"),
]
