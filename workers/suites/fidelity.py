"""Teacher-forced decode: the engine decodes the document's own next tokens and shows what it thought of each.

Every document is cut into `context_tokens` of prompt and `decode_tokens` of reference. The reference is forced token by
token (see `workers.engines.forced_tokens`), so both arms score the same tokens, through the decode path and the cache
that it reads. In cold mode each request has a cache salt of its own, so that nothing can be reused; in warm mode the
prompt has been sent just before with the same salt, so that its blocks come from the prefix cache.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from typing import Any

import httpx

from gatekeeper.domain.item_order import batch_ends
from gatekeeper.domain.measurement import Mode, TokenTrace
from gatekeeper.domain.suite import FidelityProbe
from workers.engines.base import Server
from workers.engines.errors import ProbeFailed
from workers.suites.base import Bench, exercised

SUITE = "fidelity"
POLL_SECONDS = 0.5
TOKEN_PREFIX = "token_id:"  # noqa: S105 - vLLM's spelling of a token given by its id


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A text cut into prompt and reference, as token ids."""

    item_id: str
    prompt: tuple[int, ...]
    reference: tuple[int, ...]


def run(probe: FidelityProbe, bench: Bench) -> None:
    """Score every document in every mode, storing traces as they come; look after each batch whether that is enough."""
    documents = load_documents(probe, bench.server)
    parts = [documents[start:end] for start, end in pairwise((0, *batch_ends(len(documents), probe.batches)))]
    total, done = len(documents) * len(bench.modes), 0
    bench.advance(0, total)
    for mode in bench.modes:
        with exercised(bench, suite=SUITE, mode=mode, expected="moved" if mode == "warm" else "still"):
            for batch, part in enumerate(parts):
                for trace in _scored(probe, bench, part, mode):
                    bench.sink.traces([replace(trace, batch=batch)])
                    done += 1
                    bench.advance(done, total)
                if batch + 1 < len(parts) and bench.is_enough(SUITE, mode, batch + 1):
                    break


def load_documents(probe: FidelityProbe, server: Server) -> list[Document]:
    """The first bundled texts, tokenized by the engine. Raises ProbeFailed if one is too short."""
    files = sorted(
        (
            entry
            for entry in resources.files("workers.suites").joinpath("texts").iterdir()
            if entry.name.endswith(".txt")
        ),
        key=lambda entry: entry.name,
    )
    needed = probe.context_tokens + probe.decode_tokens
    documents = []
    for entry in files[: probe.documents]:
        tokens = _tokenize(server, entry.read_text(encoding="utf-8"))
        if len(tokens) < needed:
            raise ProbeFailed(f"text {entry.name} has {len(tokens)} tokens, {needed} are needed")
        prompt, reference = tokens[: probe.context_tokens], tokens[probe.context_tokens : needed]
        documents.append(
            Document(
                item_id=entry.name.removesuffix(".txt"), prompt=tuple(prompt), reference=tuple(reference)
            )
        )
    return documents


def _tokenize(server: Server, text: str) -> list[int]:
    body = {"model": server.plan.model.name, "prompt": text, "add_special_tokens": False}
    answer: Any = server.post("/tokenize", body)
    tokens: list[int] = answer["tokens"]
    return tokens


def _scored(
    probe: FidelityProbe, bench: Bench, documents: Sequence[Document], mode: Mode
) -> Iterator[TokenTrace]:
    pool = ThreadPoolExecutor(bench.concurrency)
    pending = {pool.submit(score, probe, bench.server, document, mode) for document in documents}
    try:
        while pending:
            bench.server.check()
            done, pending = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            yield from (task.result() for task in done)
    finally:  # without waiting: requests under way end with the engine, which is stopped next
        pool.shutdown(wait=False, cancel_futures=True)


def score(probe: FidelityProbe, server: Server, document: Document, mode: Mode) -> TokenTrace:
    """Force and score one document. Raises ProbeFailed if the engine did not force the reference."""
    body: dict[str, object] = {
        "model": server.plan.model.name,
        "prompt": list(document.prompt),
        "max_tokens": len(document.reference),
        "temperature": 0.0,
        "ignore_eos": True,
        "logprobs": probe.top_k,
        "return_tokens_as_token_ids": True,
        "cache_salt": uuid.uuid4().hex,
        "vllm_xargs": {"forced_token_ids": list(document.reference)},
    }
    try:
        if mode == "warm":
            server.post("/v1/completions", body | {"max_tokens": 1})
        answer: Any = server.post("/v1/completions", body)
    except httpx.HTTPStatusError as error:
        if error.response.is_server_error and _completes(server, document):
            return broken_trace(document, mode=mode)
        raise ProbeFailed(f"{document.item_id}: {error.response.text[:300]}") from error
    return trace_of(answer["choices"][0]["logprobs"], document, mode=mode, top_k=probe.top_k)


def _completes(server: Server, document: Document) -> bool:
    """Whether the engine answers the same prompt when it need not write log-probabilities."""
    body = {
        "model": server.plan.model.name,
        "prompt": list(document.prompt),
        "max_tokens": 1,
        "temperature": 0.0,
    }
    try:
        server.post("/v1/completions", body)
    except httpx.HTTPStatusError:
        return False
    return True


def broken_trace(document: Document, *, mode: Mode) -> TokenTrace:
    """The trace of a document whose log-probabilities could not be written down.

    JSON has no NaN: an engine that computes one answers with a server error, while it still completes the same prompt.
    """
    nothing = [None] * len(document.reference)
    return TokenTrace(
        suite=SUITE, mode=mode, item_id=document.item_id, cluster=document.item_id, token_ids=document.reference,
        token_logprobs=nothing, top_ids=[[token] for token in document.reference],
        top_logprobs=[[None] for _ in document.reference],
    )  # fmt: skip


def trace_of(logprobs: Mapping[str, Any], document: Document, *, mode: Mode, top_k: int) -> TokenTrace:
    """Turn a completion's logprobs, keyed by token id, into a trace. Raises ProbeFailed on other tokens than forced."""
    forced = [_token_id(token) for token in logprobs["tokens"]]
    if tuple(forced) != document.reference:
        raise ProbeFailed(f"{document.item_id}: the engine did not force the reference tokens")
    rows = [_top(row, top_k) for row in logprobs["top_logprobs"]]
    return TokenTrace(
        suite=SUITE,
        mode=mode,
        item_id=document.item_id,
        cluster=document.item_id,
        token_ids=document.reference,
        token_logprobs=[_finite(value) for value in logprobs["token_logprobs"]],
        top_ids=[[token for token, _ in row] for row in rows],
        top_logprobs=[[_finite(value) for _, value in row] for row in rows],
    )


def _top(row: Mapping[str, float | None], top_k: int) -> list[tuple[int, float | None]]:
    """The k best of a row, best first; the engine adds the chosen token where it is not among them."""
    pairs = [(_token_id(token), value) for token, value in row.items()]
    return sorted(pairs, key=lambda pair: (-_or_infinite(pair[1]), pair[0]))[:top_k]


def _or_infinite(value: float | None) -> float:
    """The value, or infinity where it is not finite: a broken logprob must not slip out of the top k."""
    finite = _finite(value)
    return math.inf if finite is None else finite


def _token_id(token: str) -> int:
    return int(token.removeprefix(TOKEN_PREFIX))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
