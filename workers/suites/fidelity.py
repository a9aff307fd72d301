"""Teacher-forced decode: the engine decodes the document's own next tokens and shows what it thought of each.

Every document is cut into `context_tokens` of prompt and `decode_tokens` of reference, at several lengths into as many
prompts that end before the same reference. The reference is forced token by token (see
`workers.engines.forced_tokens`), so both arms score the same tokens, through the decode path and the cache that it
reads. In cold mode each request has a cache salt of its own, so that nothing can be reused; in warm mode the
prompt has been sent just before with the same salt, so that its blocks come from the prefix cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, pairwise

from gatekeeper.domain.item_order import batch_ends
from gatekeeper.domain.measurement import Mode, TokenTrace
from gatekeeper.domain.probes import FidelityProbe
from workers.suites.base import Bench, exercised, in_parallel
from workers.suites.documents import Document, load_at_lengths
from workers.suites.scoring import SUITE, score_forced, score_primed


def run(probe: FidelityProbe, bench: Bench) -> None:
    """Score every document in every state of the cache, storing traces as they come.

    After each batch of documents it looks whether that is enough.
    """
    documents = load_at_lengths(
        bench.server, documents=probe.documents, context_lengths=probe.context_lengths,
        decode_tokens=probe.decode_tokens,
    )  # fmt: skip
    ends = batch_ends(len(documents), probe.batches)
    parts = [_by_length(documents[start:end]) for start, end in pairwise((0, *ends))]
    cache_states = [mode for mode in bench.modes if mode in ("cold", "warm")]
    total, done = sum(map(len, parts)) * len(cache_states), count(1)
    bench.advance(0, total)
    for mode in cache_states:
        with exercised(bench, suite=SUITE, mode=mode, expected="moved" if mode == "warm" else "still"):
            for batch, part in enumerate(parts):
                for trace in _scored(probe, bench, mode, part):
                    bench.sink.traces([replace(trace, batch=batch)])
                    bench.advance(next(done), total)
                if batch + 1 < len(parts) and bench.is_enough(SUITE, mode, batch + 1):
                    break


def _by_length(documents: Sequence[Sequence[Document]]) -> list[Document]:
    """All documents of one length before the next, so that as many as are in flight together are of the longest."""
    return [document for of_one_length in zip(*documents, strict=True) for document in of_one_length]


def _scored(
    probe: FidelityProbe, bench: Bench, mode: Mode, documents: Sequence[Document]
) -> Iterator[TokenTrace]:
    by_mode = score_primed if mode == "warm" else score_forced
    score = partial(by_mode, bench.server, mode=mode, top_k=probe.top_k)
    return in_parallel(bench, documents, score, concurrency=bench.concurrency)
