"""The HTTP server: requests become jobs, and their tokens answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from workers.engines.reference import api
from workers.engines.reference.meter import Meter
from workers.engines.reference.runner import Sampling, Scored
from workers.engines.reference.scheduler import Job, Scheduler
from workers.engines.token_ids import spelled

DEFAULT_MAX_TOKENS = 16
"""OpenAI's and vLLM's, for completions."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """What the routes share."""

    name: str
    max_model_len: int
    tokenizer: Any
    eos_ids: frozenset[int]
    vocabulary: int
    scheduler: Scheduler
    meter: Meter

    def job(self, request: api.Common, prompt: Sequence[int], *, max_tokens: int | None, top: int) -> Job:
        """Queue one sequence. Raises HTTPException for what can't be computed."""
        room = self.max_model_len - len(prompt)
        wanted = room if max_tokens is None else max_tokens
        forced = request.vllm_xargs.get("forced_token_ids") or []
        self._check(prompt, wanted, room, forced)
        sampling = Sampling(
            max_tokens=wanted, temperature=request.temperature, top_p=request.top_p, top_k=request.top_k,
            seed=request.seed or 0, forced=tuple(forced), min_tokens=request.min_tokens,
            stop_ids=frozenset(request.stop_token_ids) | (frozenset() if request.ignore_eos else self.eos_ids),
        )  # fmt: skip
        scores = request.prompt_logprobs
        if isinstance(request, api.CompletionRequest) and request.echo and request.logprobs is not None:
            scores = max(request.logprobs, scores or 0)
        job = Job(prompt=prompt, sampling=sampling, top=top, prompt_top=scores, salt=request.cache_salt or "")
        self.scheduler.submit(job)
        return job

    def _check(self, prompt: Sequence[int], wanted: int, room: int, forced: Any) -> None:
        if not prompt:
            raise HTTPException(400, "prompt: has no tokens; allowed: one or more")
        if wanted > room or room < 1:
            allowed = f"at most {self.max_model_len} tokens together"
            raise HTTPException(
                400, f"max_tokens: {len(prompt)} in the prompt and {wanted} more; allowed: {allowed}"
            )
        known = range(self.vocabulary)
        for field, tokens in (("prompt", prompt), ("vllm_xargs.forced_token_ids", forced)):
            if not isinstance(tokens, Sequence) or not all(
                type(token) is int and token in known for token in tokens
            ):
                raise HTTPException(
                    400, f"{field}: not token ids; allowed: a list of 0 to {self.vocabulary - 1}"
                )

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Tokens of a text."""
        tokens: list[int] = self.tokenizer(text, add_special_tokens=special)["input_ids"]
        return tokens

    def chat(self, messages: Sequence[api.Message], *, generate: bool, continued: bool) -> list[int]:
        """Tokens of a chat as the model's template writes it. Raises HTTPException where it can't."""
        turns = [message.model_dump() for message in messages]
        try:
            text = self.tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=generate, continue_final_message=continued
            )
        except Exception as error:
            raise HTTPException(400, f"messages: the model's chat template refuses them: {error}") from error
        return self.encode(text, special=False)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special ones left out."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def named(self, request: api.Common) -> api.Name:
        """How tokens are written."""
        if request.return_tokens_as_token_ids:
            return spelled
        return lambda token: str(self.tokenizer.decode([token]))


@dataclass(kw_only=True)
class Answer:
    """A job's tokens as they come, with their text, cut at the first stop text."""

    service: Service
    job: Job
    stops: Sequence[str]
    tokens: list[Scored]
    text: str = ""
    finish_reason: str = "length"

    def pieces(self) -> Iterator[str]:
        """The text piece by piece; what could be the beginning of a character or of a stop text waits."""
        said = ""
        for row in self.job.tokens():
            if self.job.is_enough:
                continue
            self.tokens.append(row)
            self.text = self.service.decode([each.token for each in self.tokens])
            cut = min((place for stop in self.stops if (place := self.text.find(stop)) >= 0), default=None)
            if cut is not None:
                self.text, self.finish_reason, self.job.is_enough = self.text[:cut], "stop", True
            elif not self.text.endswith("\ufffd") and not self.stops:
                yield self.text[len(said) :]
                said = self.text
            if row.token in self.job.sampling.stop_ids:
                self.finish_reason = "stop"
        yield self.text[len(said) :]


def create_app(service: Service) -> FastAPI:
    """All routes."""
    app = FastAPI(title="gatekeeper's reference engine", openapi_url=None)

    @app.exception_handler(HTTPException)
    async def refuse(_request: Request, error: HTTPException) -> JSONResponse:
        body = {"error": {"message": str(error.detail), "type": "BadRequestError", "code": error.status_code}}
        return JSONResponse(body, status_code=error.status_code)

    @app.get("/health")
    async def health() -> PlainTextResponse:
        return PlainTextResponse("")

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(service.meter.text())

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        about = {
            "id": service.name,
            "object": "model",
            "owned_by": "gatekeeper",
            "max_model_len": service.max_model_len,
        }
        return {"object": "list", "data": [about]}

    @app.post("/tokenize")
    def tokenize(request: api.TokenizeRequest) -> dict[str, Any]:
        if request.messages is not None:
            how = {"generate": request.add_generation_prompt, "continued": request.continue_final_message}
            tokens = service.chat(request.messages, **how)
        else:
            tokens = service.encode(request.prompt or "", special=request.add_special_tokens)
        return {"tokens": tokens, "count": len(tokens), "max_model_len": service.max_model_len}

    @app.post("/detokenize")
    def detokenize(request: api.DetokenizeRequest) -> dict[str, Any]:
        return {"prompt": service.tokenizer.decode(request.tokens)}

    @app.post("/v1/completions", response_model=None)
    def completions(request: api.CompletionRequest) -> dict[str, Any] | StreamingResponse:
        return complete(service, request)

    @app.post("/v1/chat/completions", response_model=None)
    def chat_completions(request: api.ChatRequest) -> dict[str, Any] | StreamingResponse:
        return chat(service, request)

    return app


def complete(service: Service, request: api.CompletionRequest) -> dict[str, Any] | StreamingResponse:
    """Answer `/v1/completions`: all prompts of the request, each its own choice."""
    prompts = [
        tokens if isinstance(tokens, list) else service.encode(tokens) for tokens in _listed(request.prompt)
    ]
    limit = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    jobs = [service.job(request, prompt, max_tokens=limit, top=request.logprobs or 0) for prompt in prompts]
    answers = [Answer(service=service, job=job, stops=request.stops, tokens=[]) for job in jobs]
    if request.stream:
        return StreamingResponse(
            api.events(_stream(service, request, answers)), media_type="text/event-stream"
        )
    choices = [_choice(service, request, index, answer) for index, answer in enumerate(answers)]
    usage = api.usage_of(sum(map(len, prompts)), sum(len(answer.tokens) for answer in answers))
    return api.envelope("text_completion", service.name, choices, usage)


def _listed(prompt: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]]) -> list[Any]:
    is_one = isinstance(prompt, str) or not prompt or isinstance(prompt[0], int)
    return [prompt] if is_one else list(prompt)


def _choice(service: Service, request: api.CompletionRequest, index: int, answer: Answer) -> dict[str, Any]:
    name, job = service.named(request), answer.job
    scores = job.prompt_scores()
    for _ in answer.pieces():
        pass
    echoed = service.decode(job.prompt) if request.echo else ""
    choice = {
        "index": index,
        "text": echoed + answer.text,
        "finish_reason": answer.finish_reason,
        "logprobs": None,
    }
    if request.logprobs is not None:
        before = [None, *scores] if request.echo else []
        logprobs = api.completion_logprobs([*before, *answer.tokens], name)
        if request.echo:
            logprobs["tokens"].insert(0, name(job.prompt[0]))
        choice["logprobs"] = logprobs
    if request.prompt_logprobs is not None:
        choice["prompt_logprobs"] = api.prompt_logprobs(scores, name)
    return choice


def _stream(
    service: Service, request: api.CompletionRequest, answers: Sequence[Answer]
) -> Iterator[Mapping[str, Any]]:
    """Chunks of all choices, one choice after the other; counts at the end where asked for."""
    for index, answer in enumerate(answers):
        answer.job.prompt_scores()
        for piece in answer.pieces():
            choice = {"index": index, "text": piece, "finish_reason": None}
            yield api.envelope("text_completion", service.name, [choice], None)
        last = {"index": index, "text": "", "finish_reason": answer.finish_reason}
        yield api.envelope("text_completion", service.name, [last], None)
    if request.stream_options.include_usage:
        counts = (
            sum(len(answer.job.prompt) for answer in answers),
            sum(len(answer.tokens) for answer in answers),
        )
        yield api.envelope("text_completion", service.name, [], api.usage_of(*counts))


def chat(service: Service, request: api.ChatRequest) -> dict[str, Any] | StreamingResponse:
    """Answer `/v1/chat/completions`."""
    prompt = service.chat(request.messages, generate=True, continued=False)
    limit = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    job = service.job(request, prompt, max_tokens=limit, top=request.top_logprobs if request.logprobs else 0)
    answer = Answer(service=service, job=job, stops=request.stops, tokens=[])
    if request.stream:
        return StreamingResponse(
            api.events(_chat_stream(service, request, answer)), media_type="text/event-stream"
        )
    job.prompt_scores()
    for _ in answer.pieces():
        pass
    message = {"role": "assistant", "content": answer.text}
    logprobs = api.chat_logprobs(answer.tokens, service.named(request)) if request.logprobs else None
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason, "logprobs": logprobs}
    usage = api.usage_of(len(prompt), len(answer.tokens))
    return api.envelope("chat.completion", service.name, [choice], usage)


def _chat_stream(service: Service, request: api.ChatRequest, answer: Answer) -> Iterator[Mapping[str, Any]]:
    def chunk(delta: Mapping[str, str], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return api.envelope("chat.completion.chunk", service.name, [choice], None)

    answer.job.prompt_scores()
    yield chunk({"role": "assistant", "content": ""}, None)
    for piece in answer.pieces():
        yield chunk({"content": piece}, None)
    yield chunk({}, answer.finish_reason)
    if request.stream_options.include_usage:
        usage = api.usage_of(len(answer.job.prompt), len(answer.tokens))
        yield api.envelope("chat.completion.chunk", service.name, [], usage)
