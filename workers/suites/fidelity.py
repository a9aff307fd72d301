"""Teacher-forced decode: the engine decodes the document's own next tokens and shows what it thought of each.

Every document is cut into `context_tokens` of prompt and `decode_tokens` of reference, at several lengths into as many
prompts that end before the same reference. The reference is forced token by token (see
`workers.engines.forced_tokens`), so both arms score the same tokens, through the decode path and the cache that it
reads. In cold mode each request has a cache salt of its own, so that nothing can be reused; in warm mode the
prompt has been sent just before with the same salt, so that its blocks come from the prefix cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, cycle, islice, pairwise
from typing import Final

from gatekeeper.domain.item_order import batch_ends
from gatekeeper.domain.measurement import Mode, TokenTrace
from gatekeeper.domain.probes import FidelityProbe
from workers.suites.base import Bench, exercised, in_batches, together
from workers.suites.documents import Document, load_at_lengths
from workers.suites.scoring import SUITE, score_forced, score_primed

SCORED: Final[Mapping[Mode, Callable[..., TokenTrace]]] = {"cold": score_forced, "warm": score_primed}
"""How a document is scored in a state of the cache."""


def run(probe: FidelityProbe, bench: Bench) -> None:
    """Score every document in every state of the cache, storing traces as they come.

    After each batch of documents it looks whether that is enough. Where the deployment declares more requests at once
    than there are, documents are sent again beside them, unscored, so that it is that many.
    """
    documents = load_at_lengths(
        bench.server, documents=probe.documents, context_lengths=probe.context_lengths,
        decode_tokens=probe.decode_tokens,
    )  # fmt: skip
    ends = batch_ends(len(documents), probe.batches)
    parts = [_by_length(documents[start:end]) for start, end in pairwise((0, *ends))]
    cache_states: list[Mode] = [mode for mode in bench.modes if mode in SCORED]
    of_one_state = sum(map(len, parts))
    lacking = max((bench.deployment.concurrency or 0) - of_one_state, 0)
    company = list(islice(cycle(parts[0]), lacking))
    total, done = of_one_state * len(cache_states), count(1)
    bench.advance(0, total)
    for mode in cache_states:
        with (
            exercised(bench, suite=SUITE, mode=mode, expected="moved" if mode == "warm" else "still"),
            together(bench, suite=SUITE, mode=mode),
        ):
            score = partial(SCORED[mode], bench.server, mode=mode, top_k=probe.top_k)
            for batch, trace in in_batches(bench, parts, score, suite=SUITE, mode=mode, company=company):
                bench.sink.traces([replace(trace, batch=batch)])
                bench.advance(next(done), total)


def _by_length(documents: Sequence[Sequence[Document]]) -> list[Document]:
    """All documents of one length before the next, so that as many as are in flight together are of the longest."""
    return [document for of_one_length in zip(*documents, strict=True) for document in of_one_length]
