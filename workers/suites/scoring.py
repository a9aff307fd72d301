"""One document scored token by token: forced through the decode, generated freely, or read as a part of the prompt."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx

from gatekeeper.domain.measurement import Mode, TokenTrace
from workers.engines.base import Server
from workers.engines.errors import ProbeFailed, Unsupported
from workers.engines.token_ids import token_id
from workers.suites.documents import Document

SUITE = "fidelity"

Score = Callable[[Document], TokenTrace]


def score_forced(server: Server, document: Document, *, mode: Mode, top_k: int) -> TokenTrace:
    """Force the reference and score it. Raises Unsupported if the engine did not force it."""
    answer = _answer(server, document, _forced(server, document, top_k))
    if answer is None:
        return broken_trace(document, mode=mode)
    return trace_of(answer["choices"][0]["logprobs"], document, mode=mode, top_k=top_k)


def score_primed(server: Server, document: Document, *, mode: Mode, top_k: int) -> TokenTrace:
    """The same with the prompt sent just before, so that its blocks come from the prefix cache."""
    body = _forced(server, document, top_k)
    answer = _answer(server, document, body | {"max_tokens": 1}) and _answer(server, document, body)
    if answer is None:
        return broken_trace(document, mode=mode)
    return trace_of(answer["choices"][0]["logprobs"], document, mode=mode, top_k=top_k)


def score_free(server: Server, document: Document, *, mode: Mode, top_k: int) -> TokenTrace:
    """Generate as many tokens as the reference has, greedily; the trace is of the engine's own tokens."""
    answer = _answer(server, document, _completion(server, document, top_k))
    if answer is None:
        return broken_trace(document, mode=mode)
    logprobs = answer["choices"][0]["logprobs"]
    own = tuple(token_id(token) for token in logprobs["tokens"])
    return trace_of(logprobs, replace(document, reference=own), mode=mode, top_k=top_k)


def score_as_prompt(server: Server, document: Document, *, mode: Mode, top_k: int) -> TokenTrace:
    """Score the reference as a part of the prompt: by the prefill path instead of the decode path."""
    whole = [*document.prompt, *document.reference]
    body = _completion(server, document, top_k) | {
        "prompt": whole, "max_tokens": 1, "logprobs": None, "prompt_logprobs": top_k,
    }  # fmt: skip
    answer = _answer(server, document, body)
    if answer is None:
        return broken_trace(document, mode=mode)
    rows = answer["choices"][0]["prompt_logprobs"][len(document.prompt) :]
    values = [{int(token): entry["logprob"] for token, entry in row.items()} for row in rows]
    chosen = [row.get(token) for token, row in zip(document.reference, values, strict=True)]
    return _trace(document, mode=mode, chosen=chosen, rows=[_best(row, top_k) for row in values])


def _completion(server: Server, document: Document, top_k: int) -> dict[str, object]:
    """A request whose answer is as long as the reference, and which shares no cache with any other."""
    return {
        "model": server.plan.model.name,
        "prompt": list(document.prompt),
        "max_tokens": len(document.reference),
        "temperature": 0.0,
        "ignore_eos": True,
        "logprobs": top_k,
        "return_tokens_as_token_ids": True,
        "cache_salt": uuid.uuid4().hex,
    }


def _forced(server: Server, document: Document, top_k: int) -> dict[str, object]:
    """The same with the reference for an answer."""
    forced = {"forced_token_ids": list(document.reference)}
    return _completion(server, document, top_k) | {"vllm_xargs": forced}


def _answer(server: Server, document: Document, body: Mapping[str, object]) -> Any:
    """The engine's answer; None if it could not write its log-probabilities down.

    Raises Unsupported if the engine refuses the request, ProbeFailed if it can't answer it.
    """
    try:
        return server.post("/v1/completions", body)
    except httpx.HTTPStatusError as error:
        refusal = f"{document.item_id}: {error.response.text[:300]}"
        if not error.response.is_server_error:
            raise Unsupported(refusal) from error
        if completes(server, list(document.prompt)):
            return None
        raise ProbeFailed(refusal) from error


def completes(server: Server, prompt: str | list[int]) -> bool:
    """Whether the engine answers a prompt when it need not write log-probabilities."""
    body = {"model": server.plan.model.name, "prompt": prompt, "max_tokens": 1, "temperature": 0.0}
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
    return _trace(document, mode=mode, chosen=nothing, rows=[[(token, None)] for token in document.reference])


def trace_of(logprobs: Mapping[str, Any], document: Document, *, mode: Mode, top_k: int) -> TokenTrace:
    """Turn a completion's logprobs, keyed by token id, into a trace. Raises Unsupported on other tokens than forced."""
    forced = [token_id(token) for token in logprobs["tokens"]]
    if tuple(forced) != document.reference:
        raise Unsupported(f"{document.item_id}: the engine did not force the reference tokens")
    rows = [
        _best({token_id(token): value for token, value in row.items()}, top_k)
        for row in logprobs["top_logprobs"]
    ]
    return _trace(document, mode=mode, chosen=logprobs["token_logprobs"], rows=rows)


def _trace(
    document: Document,
    *,
    mode: Mode,
    chosen: Sequence[float | None],
    rows: Sequence[Sequence[tuple[int, float | None]]],
) -> TokenTrace:
    return TokenTrace(
        suite=SUITE,
        mode=mode,
        item_id=document.item_id,
        cluster=document.cluster,
        token_ids=document.reference,
        token_logprobs=[_finite(value) for value in chosen],
        top_ids=[[token for token, _ in row] for row in rows],
        top_logprobs=[[_finite(value) for _, value in row] for row in rows],
        context_tokens=len(document.prompt),
    )


def _best(row: Mapping[int, float | None], top_k: int) -> list[tuple[int, float | None]]:
    """The k best of a row, best first; the engine adds the chosen token where it is not among them."""
    return sorted(row.items(), key=lambda pair: (-_or_infinite(pair[1]), pair[0]))[:top_k]


def _or_infinite(value: float | None) -> float:
    """The value, or infinity where it is not finite: a broken logprob must not slip out of the top k."""
    finite = _finite(value)
    return math.inf if finite is None else finite


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
