"""Asks the items and says of each whether it was right, and how probable the right answer was.

The answer is not generated but forced (see `workers.engines.forced_tokens`), and it is right if each of its tokens is
the most probable one at its place. That is exact match of greedy decoding, decided by one request: greedy decoding
writes the answer if and only if each of its tokens, given those before it, is the greedy choice, and as long as that
holds, forced and free decoding read and write the same cache. Where it ceases to hold, both have failed the item.

Forcing gives what free decoding does not: the same tokens are scored in both arms whatever went wrong before them, so
the mean probability of the answer's tokens is a continuous score of the very same item, which moves before any answer
flips. A tie counts as right: bfloat16 logits tie often, and how an engine breaks a tie says nothing about its cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from typing import Final

from gatekeeper.domain.answer import (
    MOST_CHANCES,
    MOST_PLACES,
    MOST_PROMPT,
    MOST_TEXT,
    Answer,
    Chances,
    excerpt,
)
from gatekeeper.domain.item_order import batch_ends, item_order
from gatekeeper.domain.measurement import Measurement, TokenTrace
from gatekeeper.domain.probes import RetrievalProbe
from workers.engines.base import Server
from workers.engines.errors import Unsupported
from workers.suites.base import Bench, exercised, in_batches
from workers.suites.context.families import FAMILIES
from workers.suites.context.items import Item, Tokenizer, write_items
from workers.suites.context.prompt_sets import PromptSet
from workers.suites.documents import Document
from workers.suites.scoring import score_forced

SUITE: Final = "retrieval"


def run(probe: RetrievalProbe, bench: Bench) -> None:
    """Write all items, ask them in the same random order in every arm, and store what each came to.

    After each batch it looks whether that is enough. Raises Unsupported if the engine can't force or tokenize.
    """
    bench.advance(0, sum(probe.items.values()))
    tokenizer = Tokenizer(server=bench.server)
    items = sorted(_written(probe, bench, tokenizer), key=lambda item: item_order(item.item_id, probe.seed))
    parts = [items[start:end] for start, end in pairwise((0, *batch_ends(len(items), probe.batches)))]
    work, done = partial(_asked, bench.server, tokenizer), count(1)
    with exercised(bench, suite=SUITE, mode="cold", expected="still"):
        for batch, (rows, said) in in_batches(bench, parts, work, suite=SUITE, mode="cold"):
            bench.sink.measurements([replace(row, batch=batch) for row in rows])
            bench.sink.answers(said)
            bench.advance(next(done), len(items))


def _written(probe: RetrievalProbe, bench: Bench, tokenizer: Tokenizer) -> Iterator[Item]:
    """The items of every family that the model can be asked, and the operator's; a chat needs a chat template.

    Raises Unsupported where that comes to none at all.
    """
    unwritten = dict[str, str]()
    for family in probe.families:
        try:
            for length in probe.context_tokens:
                yield from write_items(
                    FAMILIES[family],
                    family,
                    tokenizer,
                    length=length,
                    count=probe.items_per_cell,
                    seed=probe.seed,
                )
        except Unsupported as error:
            unwritten[family] = error.detail
            bench.sink.skipped(f"{SUITE}/{family}", error.detail)
    for name, size in probe.prompt_sets.items():
        own = PromptSet(name=name, count=size, folder=bench.tasks_dir)
        yield from own.items(tokenizer, longest=max(probe.context_tokens))
    if len(unwritten) == len(probe.families) and not probe.prompt_sets:
        raise Unsupported(next(iter(unwritten.values())))


def _asked(
    server: Server, tokenizer: Tokenizer, item: Item
) -> tuple[tuple[Measurement, Measurement], list[Answer]]:
    """What an item came to, and what the arm said where it could."""
    trace = forced(server, item)
    return measured(item, trace), answers_of(item, trace, tokenizer)


def forced(server: Server, item: Item) -> TokenTrace:
    """The item's continuation, forced and scored."""
    document = Document(item_id=item.item_id, cluster=item.item_id, prompt=item.prompt, reference=item.forced)
    return score_forced(server, document, mode="cold", top_k=MOST_CHANCES)


def measured(item: Item, trace: TokenTrace) -> tuple[Measurement, Measurement]:
    """`retrieved` as 0 or 1, and `answer_probability`, the mean over the answers' tokens.

    Both are without value, which counts as broken, where the engine has no finite probability for an answer's token.
    """
    answer = [
        (chosen, best[0])
        for chosen, best, scored in zip(trace.token_logprobs, trace.top_logprobs, item.scored, strict=True)
        if scored
    ]
    known = [(chosen, best) for chosen, best in answer if chosen is not None and best is not None]
    is_whole = len(known) == len(answer)
    right = float(all(chosen >= best for chosen, best in known)) if is_whole else math.nan
    probability = sum(math.exp(chosen) for chosen, _ in known) / len(known) if is_whole else math.nan
    place = partial(
        Measurement.of, suite=SUITE, mode="cold", item_id=item.item_id, cluster=item.family,
        context_tokens=item.context_tokens,
    )  # fmt: skip
    return place(metric="retrieved", value=right), place(metric="answer_probability", value=probability)


def answers_of(item: Item, trace: TokenTrace, tokenizer: Tokenizer) -> list[Answer]:
    """The most probable tokens at each place of the answers, given those before it; none where one has no value."""
    rows = zip(trace.top_ids, trace.top_logprobs, item.scored, strict=True)
    scored = [(ids, logprobs) for ids, logprobs, is_scored in rows if is_scored][:MOST_PLACES]
    if any(value is None for _, logprobs in scored for value in logprobs):
        return []
    anchor = item.forced[0]
    places: tuple[Chances, ...] = tuple(
        tuple(
            (tokenizer.token_text(token, after=anchor), math.exp(value))
            for token, value in zip(ids, logprobs, strict=True)
            if value is not None
        )
        for ids, logprobs in scored
    )
    answer = Answer(
        suite=SUITE, mode="cold", item_id=item.item_id, prompt=excerpt(item.question, MOST_PROMPT),
        expected=excerpt(item.answer, MOST_TEXT), text="".join(chances[0][0] for chances in places), places=places,
    )  # fmt: skip
    return [answer]
