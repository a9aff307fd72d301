"""Requests under way: each prompt computed by itself, then all decoding together, in the one thread with the model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from workers.engines.reference.meter import Meter
from workers.engines.reference.prefix_cache import PrefixCache
from workers.engines.reference.runner import Context, Runner, Sampling, Scored, choose, scored


@dataclass(kw_only=True)
class Job:
    """One sequence to complete. `top`: alternatives reported per token; `prompt_top`: per prompt token, None: none.

    `salt`: only prompts with the same one share a prefix. `is_enough`, once set, ends it before its next token.
    """

    prompt: Sequence[int]
    sampling: Sampling
    top: int = 0
    prompt_top: int | None = None
    salt: str = ""
    is_enough: bool = False
    answers: queue.SimpleQueue[Sequence[Scored] | Scored | Exception | None] = field(
        default_factory=queue.SimpleQueue
    )
    """The prompt's scores first, then each token, then None; or an exception at any place."""

    def prompt_scores(self) -> Sequence[Scored]:
        """Wait for the prompt; its tokens from the second on. Raises what the model raised."""
        answer = self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Sequence)  # it comes first
        return answer

    def tokens(self) -> Iterator[Scored]:
        """Wait for each token. Raises what the model raised."""
        while (answer := self.answers.get()) is not None:
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, Scored)
            yield answer


@dataclass(kw_only=True)
class _Running:
    job: Job
    context: Context
    generator: torch.Generator
    tokens: list[int] = field(default_factory=list)

    def goes_on(self) -> bool:
        """Choose and hand out a token; say whether another one follows."""
        sampling, number = self.job.sampling, len(self.tokens)
        if self.job.is_enough or number >= sampling.max_tokens:
            return False
        logprobs = self.context.next_logprobs
        token = choose(logprobs, sampling, number, self.generator)
        self.tokens.append(token)
        self.job.answers.put(scored(logprobs[None], [token], self.job.top)[0])
        return number + 1 < sampling.max_tokens and token not in sampling.stop_ids


class Scheduler:
    """Takes jobs in the order in which they come, `runner.rows` of them at a time. `prefixes`: None: none is reused."""

    def __init__(self, runner: Runner, meter: Meter, prefixes: PrefixCache | None = None) -> None:
        self._runner, self._meter, self._prefixes = runner, meter, prefixes
        self._waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._running: list[_Running] = []
        threading.Thread(target=self._work, name="model", daemon=True).start()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._meter.came()
        self._waiting.put(job)

    def _work(self) -> None:
        while True:
            while len(self._running) < self._runner.rows and (job := self._next()) is not None:
                self._start(job)
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - every request under way has to hear of it
                for running in self._running:
                    running.job.answers.put(error)
                    self._meter.failed()
                self._running = []

    def _next(self) -> Job | None:
        """The next job; waits for one only when there is nothing else to do."""
        try:
            return self._waiting.get(block=not self._running)
        except queue.Empty:
            return None

    def _start(self, job: Job) -> None:
        self._meter.started()
        try:
            context = self._runner.read_prompt(
                job.prompt, top=job.prompt_top, prefixes=self._prefixes, salt=job.salt
            )
        except Exception as error:  # noqa: BLE001 - the request has to hear of it
            self._meter.failed()
            job.answers.put(error)
            return
        self._meter.prompt_read(len(job.prompt), context.pieces, forced=bool(job.sampling.forced))
        if self._prefixes is not None:
            queried = 0 if context.reused_tokens is None else len(job.prompt)
            self._meter.looked_up(queried, context.reused_tokens or 0, held_bytes=self._prefixes.nbytes)
        job.answers.put(context.prompt_scores)
        generator = torch.Generator(device=context.next_logprobs.device).manual_seed(job.sampling.seed)
        self._running.append(_Running(job=job, context=context, generator=generator))

    def _step(self) -> None:
        """One more token for every sequence; those that go on are computed together."""
        going = []
        for running in self._running:
            if running.goes_on():
                going.append(running)
            else:
                context = running.context
                self._meter.finished(
                    len(running.tokens),
                    seen=context.seen_tokens,
                    held=context.held_tokens,
                    nbytes=context.nbytes,
                )
                running.job.answers.put(None)
        self._running = going
        if going:
            self._runner.advance([each.context for each in going], [each.tokens[-1] for each in going])
