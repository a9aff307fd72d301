"""The engine's API with one fault planted: everything is passed on, but for what the fault does to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import httpx
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.faults import served
from tests.faults.answers import Choice
from tests.faults.kinds import Failure, Fault, NoTokens, Request, Silence
from tests.faults.prefixes import PrefixCache

COMPLETIONS = "/v1/completions"
EVENT, DONE = "data: ", "[DONE]"
LISTED = 5
"""How many tokens the engine is asked to list where a fault needs free text's tokens and the client did not ask."""


@dataclass(kw_only=True)
class Proxy:
    """One fault before one engine, and what has happened since boot.

    `counted_before`: the metrics of an engine that ran before, which is to look as if it had started with this proxy.
    `after_answer` is called when the engine has answered, before its answer goes on.
    """

    fault: Fault
    upstream: httpx.AsyncClient
    counted_before: str = ""
    after_answer: Callable[[], None] = lambda: None
    requests: int = 0
    in_flight: int = 0
    prefixes: PrefixCache | None = None
    metrics_at_boot: str = ""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def app(self) -> Starlette:
        """The application."""
        return Starlette(routes=[Route("/{path:path}", self.handle, methods=["GET", "POST"])])

    async def handle(self, http: HttpRequest) -> Response:
        """Answer any request."""
        path = f"/{http.path_params['path']}"
        try:
            if path == COMPLETIONS:
                return await self.complete(await http.json())
            kind = {"content-type": http.headers.get("content-type", "application/json")}
            answer = await self.upstream.request(http.method, path, content=await http.body(), headers=kind)
        except httpx.TransportError as error:
            return JSONResponse({"error": {"message": f"the engine is not there: {error}"}}, status_code=502)
        if path == "/metrics" and answer.is_success:
            return Response(self.faulty_metrics(answer.text), media_type="text/plain")
        return _passed_on(answer)

    def faulty_metrics(self, text: str) -> str:
        """The engine's metrics since boot, with the fault."""
        now = served.since(text, self.counted_before)
        self.metrics_at_boot = self.metrics_at_boot or now
        return self.fault.metrics(now, self.metrics_at_boot)

    async def complete(self, body: Mapping[str, Any]) -> Response:
        """Answer a request for completion, by way of the engine or instead of it."""
        request = await self.admitted(body)
        match self.fault.instead(request):
            case None:
                return self.streamed(request) if body.get("stream") else await self.answered(request)
            case Failure(status=status, message=message):
                error = {"message": message, "type": "InternalServerError", "code": status}
                return JSONResponse({"error": error}, status_code=status)
            case Silence():
                await asyncio.Event().wait()
                raise AssertionError("nobody sets that event")
            case NoTokens():
                return _nothing(request)
            case other:
                assert_never(other)

    async def admitted(self, body: Mapping[str, Any]) -> Request:
        """A request, with what is known of it when it comes."""
        number, self.requests, in_flight = self.requests, self.requests + 1, self.in_flight
        prompts = await self.tokenized(body)
        if self.prefixes is None:
            self.prefixes = PrefixCache.of((await self.upstream.get("/metrics")).text)
        reused = self.prefixes.reused_tokens(body, prompts)
        return Request(body=body, prompts=prompts, number=number, reused_tokens=reused, in_flight=in_flight)

    async def answered(self, request: Request) -> Response:
        """The engine's answer, with the fault in every choice."""
        before = await self.preemptions()
        async with self.let_in():
            with self.under_way(request):
                answer = await self.upstream.post(COMPLETIONS, json=self.asked(request))
        if not answer.is_success or self.fault.choice is None:
            return _passed_on(answer)
        request = replace(request, preempted=await self.preemptions() > before)
        document = answer.json()
        document["choices"] = [self.faulty(request, choice, 0) for choice in document["choices"]]
        return JSONResponse(document)

    def streamed(self, request: Request) -> Response:
        """The engine's answer in chunks, with the fault in every chunk. Nothing is known of preemptions yet."""

        async def events() -> AsyncIterator[str]:
            offsets: dict[int, int] = {}
            with self.under_way(request):
                async with self.upstream.stream("POST", COMPLETIONS, json=self.asked(request)) as answer:
                    async for line in answer.aiter_lines():
                        if line:
                            yield f"{self.faulty_line(request, line, offsets)}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    def faulty_line(self, request: Request, line: str, offsets: dict[int, int]) -> str:
        """One event. `offsets`: decoded tokens so far by choice, kept up to date."""
        text = line.removeprefix(EVENT)
        if self.fault.choice is None or text in (line, DONE):
            return line
        document, choices = json.loads(text), []
        for choice in document.get("choices", ()):
            offset = offsets.get(choice["index"], 0)
            layout = request.layout(choice["index"], offset=offset)
            offsets[choice["index"]] = offset + layout.decoded_tokens(choice)
            choices.append(self.faulty(request, choice, offset))
        return EVENT + json.dumps({**document, "choices": choices})

    def faulty(self, request: Request, choice: Choice, offset: int) -> Choice:
        """A choice with the fault, and without what only the proxy asked for."""
        assert self.fault.choice is not None  # the callers looked
        result = self.fault.choice(request, choice, offset)
        return result if request.is_scored else {**result, "logprobs": None}

    def asked(self, request: Request) -> Mapping[str, Any]:
        """The request as the engine gets it: it lists the tokens of free text where the fault needs them."""
        if self.fault.choice is None or request.is_scored:
            return request.body
        return {**request.body, "logprobs": LISTED}

    def let_in(self) -> AbstractAsyncContextManager[object]:
        """Wait until the engine may get one more request. Streamed ones, which speed is measured by, never wait."""
        return self.turn if self.fault.one_at_a_time else nullcontext()

    @contextmanager
    def under_way(self, request: Request) -> Iterator[None]:
        """Count a request while the engine has it; afterwards its prompt can be in the prefix cache."""
        assert self.prefixes is not None  # `admitted` looked it up
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self.after_answer()
            self.prefixes.add(request.body, request.prompts)

    async def tokenized(self, body: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
        """Every prompt as token ids."""
        prompt = body["prompt"]
        if isinstance(prompt, str):
            return (await self.tokens_of(body, prompt),)
        if not prompt or isinstance(prompt[0], int):
            return (tuple(prompt),)
        return tuple([
            await self.tokens_of(body, one) if isinstance(one, str) else tuple(one) for one in prompt
        ])  # fmt: skip

    async def tokens_of(self, body: Mapping[str, Any], text: str) -> tuple[int, ...]:
        """A text's tokens, as the engine cuts it."""
        answer = await self.upstream.post("/tokenize", json={"model": body["model"], "prompt": text})
        answer.raise_for_status()
        return tuple(answer.json()["tokens"])

    async def preemptions(self) -> float:
        """The engine's counter, looked at only where the fault needs it."""
        if not self.fault.needs_preemptions:
            return 0.0
        return served.value((await self.upstream.get("/metrics")).text, served.PREEMPTIONS)


def _passed_on(answer: httpx.Response) -> Response:
    kind = {"content-type": answer.headers.get("content-type", "text/plain")}
    return Response(answer.content, status_code=answer.status_code, headers=kind)


def _nothing(request: Request) -> Response:
    """An answer without a token."""
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    logprobs = lists if request.body.get("logprobs") is not None else None
    choices = [
        {"index": index, "text": "", "logprobs": logprobs, "finish_reason": "stop"}
        for index in range(len(request.prompts) * (request.body.get("n") or 1))
    ]
    read = sum(map(len, request.prompts))
    usage = {"prompt_tokens": read, "completion_tokens": 0, "total_tokens": read}
    document = {
        "id": "cmpl-0",
        "object": "text_completion",
        "model": request.body["model"],
        "choices": choices,
    }
    if not request.body.get("stream"):
        return JSONResponse({**document, "usage": usage})
    events = [json.dumps(document), json.dumps({**document, "choices": [], "usage": usage}), DONE]
    return Response("".join(f"{EVENT}{event}\n\n" for event in events), media_type="text/event-stream")
