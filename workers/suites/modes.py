"""Teacher-forced decode in states of the engine that a quiet cold cache does not see; each proven by a counter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal, assert_never

from gatekeeper.domain.measurement import Exercise, Mode
from gatekeeper.domain.probes import CHUNKS, ModesProbe, ProbedMode
from workers.engines.vllm_effective import PIECES
from workers.suites.base import ANSWERS, PREFIX_HITS, Bench, exercised, in_parallel
from workers.suites.documents import Document, load_documents
from workers.suites.scoring import (
    SUITE,
    Score,
    score_as_prompt,
    score_forced,
    score_free,
    score_primed,
)

Expected = Literal["moved", "still", "any"]


def run(probe: ModesProbe, bench: Bench) -> None:
    """Score the documents in every mode of the probe that this arm can be in, storing traces as they come."""
    modes = [mode for mode in probe.modes if mode in bench.modes]
    total, done = len(modes) * probe.documents, 0
    bench.advance(0, total)
    for mode in modes:
        documents, score = _documents(probe, bench, mode), _score(probe, bench, mode)
        concurrency = 1 if mode == "chunked" else bench.concurrency
        with _proof(bench, mode, documents):
            for trace in in_parallel(bench, documents, score, concurrency=concurrency):
                bench.sink.traces([trace])
                done += 1
                bench.advance(done, total)


def _documents(probe: ModesProbe, bench: Bench, mode: ProbedMode) -> list[Document]:
    """What is scored in a mode. `boundary` has lengths around a whole number of blocks, in turn."""
    load = partial(load_documents, bench.server, documents=probe.documents, decode_tokens=probe.decode_tokens)
    match mode:
        case "boundary":
            lengths = probe.context_lengths_in(mode)
            return load(context_tokens=[lengths[number % 3] for number in range(probe.documents)])
        case "chunked":
            return load(context_tokens=probe.chunked_context_tokens)
        case "greedy":
            return _along(bench.references("greedy"), load(context_tokens=probe.context_tokens))
        case "first_batch" | "prefill":
            return load(context_tokens=probe.context_tokens)
        case _:
            assert_never(mode)


def _along(references: Mapping[str, Sequence[int]], documents: Sequence[Document]) -> list[Document]:
    """The documents with what the baseline generated as reference; unchanged where this is the baseline."""
    return [
        replace(document, reference=tuple(references.get(document.item_id, document.reference)))
        for document in documents
    ]


def _score(probe: ModesProbe, bench: Bench, mode: ProbedMode) -> Score:
    """How a document is scored in a mode. Only the baseline goes its own way in `greedy`."""
    if mode == "prefill":
        return partial(score_as_prompt, bench.server, mode=mode, top_k=probe.top_k)
    if mode == "greedy" and not bench.references("greedy"):
        return partial(score_free, bench.server, mode=mode, top_k=probe.top_k)
    if mode == "boundary" and "warm" in bench.modes:
        return partial(score_primed, bench.server, mode=mode, top_k=probe.top_k)
    return partial(score_forced, bench.server, mode=mode, top_k=probe.top_k)


def _proof(bench: Bench, mode: ProbedMode, documents: Sequence[Document]) -> AbstractContextManager[None]:
    """What shows that the mode happened."""
    match mode:
        case "first_batch":
            return _nothing_before(bench)
        case "boundary":
            return _on_boundaries(bench, documents)
        case "chunked":
            return _in_chunks(bench, documents)
        case "greedy" | "prefill":
            return exercised(bench, suite=SUITE, mode=mode, expected="still", counter=PREFIX_HITS)
        case _:
            assert_never(mode)


@contextmanager
def _nothing_before(bench: Bench) -> Iterator[None]:
    """The engine has answered one request since its start, the one that showed that it is ready."""
    answered = bench.server.metrics().get(ANSWERS)
    yield
    moved = None if answered is None else answered - 1
    _say(bench, "first_batch", "requests answered before", moved, expected="still")


@contextmanager
def _on_boundaries(bench: Bench, documents: Sequence[Document]) -> Iterator[None]:
    """Prompts of every length around a whole number of the engine's blocks, hit warm where prefixes are reused."""
    block = bench.server.effective.block_size
    kind: Expected = "moved" if "warm" in bench.modes else "still"
    with exercised(bench, suite=SUITE, mode="boundary", expected=kind, counter=PREFIX_HITS):
        yield
    rests = {len(document.prompt) % block for document in documents} if block else set[int]()
    reached = float(bool(block) and rests == {length % (block or 1) for length in (-1, 0, 1)})
    _say(bench, "boundary", "prompts of k-1, k and k+1 blocks' tokens", reached, expected="moved")


@contextmanager
def _in_chunks(bench: Bench, documents: Sequence[Document]) -> Iterator[None]:
    """The engine's worker tells of every forced prompt that it computed in more than one piece.

    An arm that asks for no small pieces is measured for comparison, whatever its pieces.
    """
    before = len(bench.server.logged(PIECES))
    yield
    told = [int(text) for text in bench.server.logged(PIECES)[before:]]
    fewest = min(told) if len(told) == len(documents) else 1
    asked = bench.server.plan.config.scheduling.max_num_batched_tokens is not None
    _say(
        bench, "chunked", f"pieces per prompt beyond {CHUNKS - 1}", max(fewest - (CHUNKS - 1), 0),
        expected="moved" if asked else "any",
    )  # fmt: skip


def _say(bench: Bench, mode: Mode, counter: str, moved: float | None, *, expected: Expected) -> None:
    proof = Exercise(suite=SUITE, mode=mode, counter=counter, moved=moved, expected=expected)
    bench.sink.exercises([proof])
