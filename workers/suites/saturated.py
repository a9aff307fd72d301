"""Teacher-forced decode in a pool that can't hold all requests at once, so that the scheduler preempts some."""

from __future__ import annotations

from functools import partial

from gatekeeper.domain.probes import SaturatedProbe
from workers.suites.base import PREEMPTIONS, Bench, exercised, in_parallel
from workers.suites.documents import load_documents
from workers.suites.scoring import SUITE, score_forced


def run(probe: SaturatedProbe, bench: Bench) -> None:
    """Score all documents at once, storing traces as they come."""
    documents = load_documents(
        bench.server, documents=probe.documents, context_tokens=probe.context_tokens,
        decode_tokens=probe.decode_tokens,
    )  # fmt: skip
    bench.advance(0, len(documents))
    score = partial(score_forced, bench.server, mode="saturated", top_k=probe.top_k)
    with exercised(bench, suite=SUITE, mode="saturated", expected="moved", counter=PREEMPTIONS):
        for done, trace in enumerate(
            in_parallel(bench, documents, score, concurrency=len(documents)), start=1
        ):
            bench.sink.traces([trace])
            bench.advance(done, len(documents))
