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

from gatekeeper.domain.item_order import batch_ends, item_order
from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.probes import RetrievalProbe
from workers.engines.base import Server
from workers.engines.errors import Unsupported
from workers.suites.base import Bench, exercised, in_parallel
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
    items = sorted(_written(probe, bench), key=lambda item: item_order(item.item_id, probe.seed))
    parts = [items[start:end] for start, end in pairwise((0, *batch_ends(len(items), probe.batches)))]
    work, done = partial(measured, bench.server), count(1)
    with exercised(bench, suite=SUITE, mode="cold", expected="still"):
        for batch, part in enumerate(parts):
            for rows in in_parallel(bench, part, work, concurrency=bench.concurrency):
                bench.sink.measurements([replace(row, batch=batch) for row in rows])
                bench.advance(next(done), len(items))
            if batch + 1 < len(parts) and bench.is_enough(SUITE, "cold", batch + 1):
                break


def _written(probe: RetrievalProbe, bench: Bench) -> Iterator[Item]:
    """The items of every family that the model can be asked, and the operator's; a chat needs a chat template.

    Raises Unsupported where that comes to none at all.
    """
    tokenizer, unwritten = Tokenizer(server=bench.server), dict[str, str]()
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


def measured(server: Server, item: Item) -> tuple[Measurement, Measurement]:
    """Force the item's answers: `retrieved` as 0 or 1, and `answer_probability`, the mean over the answers' tokens.

    Both are without value, which counts as broken, where the engine has no finite probability for an answer's token.
    """
    document = Document(item_id=item.item_id, cluster=item.item_id, prompt=item.prompt, reference=item.forced)
    trace = score_forced(server, document, mode="cold", top_k=1)
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
