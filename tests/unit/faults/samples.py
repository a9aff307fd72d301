"""Answers as vLLM writes them, small enough to read, and an engine in memory."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any

import httpx

from tests.faults.kinds import Fault
from tests.faults.proxy import Proxy

HALF, QUARTER = math.log(0.5), math.log(0.25)
METRICS = (
    "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
    "# TYPE vllm:cache_config_info gauge\n"
    'vllm:cache_config_info{block_size="2",cache_dtype="auto",enable_prefix_caching="True",'
    'kv_cache_size_tokens="512",num_gpu_blocks="256"} 1.0\n'
    "# TYPE vllm:prefix_cache_hits counter\n"
    'vllm:prefix_cache_hits_total{engine="0"} 0.0\n'
    "# TYPE vllm:num_preemptions counter\n"
    'vllm:num_preemptions_total{engine="0"} 0.0\n'
)


def choice(tokens: list[str], *, prompt: int = 0) -> dict[str, Any]:
    """A choice over `tokens`, the first `prompt` of them echoed; each has probability 1/2, ` other` 1/4."""
    values: list[float | None] = [HALF] * len(tokens)
    tops: list[dict[str, float] | None] = [{token: HALF, " other": QUARTER} for token in tokens]
    if prompt:
        values[0] = tops[0] = None
    return {
        "index": 0, "text": "".join(tokens), "finish_reason": "length",
        "logprobs": {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": []},
    }  # fmt: skip


class Engine:
    """An engine in memory. It answers ` a b c …`, one token per letter, and tokenizes by letter."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.hits = 0
        self.up = True

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer as vLLM does."""
        if not self.up:
            raise httpx.ConnectError("connection refused")
        if request.url.path == "/metrics":
            return httpx.Response(200, text=METRICS.replace("} 0.0", f"}} {self.hits:.1f}", 1))
        body = json.loads(request.content)
        if request.url.path == "/tokenize":
            return httpx.Response(200, json={"tokens": [ord(letter) for letter in body["prompt"]]})
        self.asked.append(body)
        tokens = [f" {letter}" for letter in "abcdefgh"[: body["max_tokens"]]]
        if body.get("stream"):
            chunks = [json.dumps({"choices": [self._choice(body, [token])]}) for token in tokens]
            return httpx.Response(200, text="".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"]))
        return httpx.Response(200, json={"choices": [self._choice(body, tokens)]})

    def _choice(self, body: Mapping[str, Any], tokens: list[str]) -> Mapping[str, Any]:
        complete = choice(tokens)
        return complete if body.get("logprobs") is not None else {**complete, "logprobs": None}


class Client:
    """A client of an engine in memory behind a fault."""

    def __init__(self, fault: Fault, engine: Engine | None = None) -> None:
        self.engine = engine or Engine()
        transport = httpx.MockTransport(self.engine.handle)
        self._proxy = Proxy(
            fault=fault, upstream=httpx.AsyncClient(transport=transport, base_url="http://engine")
        )

    def post(self, **body: object) -> httpx.Response:
        """Ask for a completion."""
        return asyncio.run(self._send("POST", "/v1/completions", {"model": "m", "max_tokens": 4, **body}))

    def metrics(self) -> str:
        """The engine's metrics, as the proxy passes them on."""
        return asyncio.run(self._send("GET", "/metrics", None)).text

    async def _send(self, method: str, path: str, body: Mapping[str, object] | None) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._proxy.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
            return await client.request(method, path, json=body)


def events(response: httpx.Response) -> list[Any]:
    """The chunks of a streamed answer, without its end."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
