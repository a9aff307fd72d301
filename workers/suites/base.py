"""What every probe shares: where it writes, how it reports progress, and how it proves a mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Literal, Protocol, TypeVar

from gatekeeper.domain.answer import Answer
from gatekeeper.domain.change import Deployment
from gatekeeper.domain.measurement import Exercise, Measurement, Mode, Stop, TokenTrace
from workers.engines.base import Metrics, Server
from workers.engines.errors import EngineFailure
from workers.engines.process import Supervised

Item = TypeVar("Item")
Result = TypeVar("Result")
POLL_SECONDS = 0.5
QUICK_LOOKS, QUICK_SECONDS, SLOW_SECONDS = 100, 0.02, 0.2
"""How often gauges are looked at: at first as often as a fast engine's short answers need, later less."""
LAST_LOOK_SECONDS = 5.0
"""How long the end of a block waits for a look that is under way."""
PREFIX_HITS = "vllm:prefix_cache_hits_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
PREEMPTIONS = "vllm:num_preemptions_total"
ANSWERS = "vllm:request_success_total"
GENERATED = "vllm:generation_tokens_total"


class Sink(Protocol):
    """Where measurements go as they come."""

    def measurements(self, rows: Sequence[Measurement]) -> None:
        """Store measurements of the arm under way."""
        ...

    def traces(self, rows: Sequence[TokenTrace]) -> None:
        """Store traces of the arm under way."""
        ...

    def answers(self, rows: Sequence[Answer]) -> None:
        """Store what the engine said, for people to read."""
        ...

    def exercises(self, rows: Sequence[Exercise]) -> None:
        """Store the proofs that a mode happened."""
        ...

    def skipped(self, probe: str, reason: str) -> None:
        """Store that a probe, or a part of it such as `retrieval/chat`, was left out."""
        ...

    def stopped(self, stop: Stop) -> None:
        """Store that a probe was ended on purpose."""
        ...


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What a probe works with. `advance(done, total)` reports items; `workdir` is private to the arm.

    `modes`: the states in which this arm is to be measured. `settled(suite, mode, batches)`: why the rest of a probe is
    not needed after that many batches, or None. `references(mode)`: by item, the tokens that the baseline scored in a
    mode; nothing where this arm is the baseline. `lm_eval`: its program, where it was started before the engine.
    """

    server: Server
    sink: Sink
    run_id: str
    workdir: Path
    deployment: Deployment
    modes: tuple[Mode, ...]
    tasks_dir: Path | None
    advance: Callable[[int, int], None]
    settled: Callable[[str, Mode, int], str | None]
    references: Callable[[Mode], Mapping[str, Sequence[int]]]
    lm_eval: Supervised | None = None

    @property
    def concurrency(self) -> int:
        """Requests in flight, the same in every arm."""
        return self.deployment.requests_in_flight

    def is_enough(self, suite: str, mode: Mode, batches: int) -> bool:
        """Look after a batch that is not the last; if the rest is not needed, store that the probe ended here."""
        reason = self.settled(suite, mode, batches)
        if reason is not None:
            self.sink.stopped(Stop(suite=suite, mode=mode, batches=batches, reason=reason))
        return reason is not None


def counted_between(before: Metrics, after: Metrics, counter: str) -> float | None:
    """How far a counter moved over a block of requests; None where the engine does not count.

    Every request generates a token, so if that counter stands still, the others say nothing either.
    """
    is_counting = after.get(GENERATED, 0.0) > before.get(GENERATED, 0.0)
    return after[counter] - before.get(counter, 0.0) if is_counting and counter in after else None


@contextmanager
def exercised(
    bench: Bench,
    *,
    suite: str,
    mode: Mode,
    expected: Literal["moved", "still", "any"],
    counter: str = PREFIX_HITS,
) -> Iterator[None]:
    """Watch an engine counter around a block of requests and store whether it did what the mode says."""
    before = bench.server.metrics()
    yield
    moved = counted_between(before, bench.server.metrics(), counter)
    exercise = Exercise(suite=suite, mode=mode, counter=counter, moved=moved, expected=expected)
    bench.sink.exercises([exercise])


@dataclass(kw_only=True)
class Crowd:
    """The most requests that an engine told of at once; None: it tells of none. `looks`: how often it was asked."""

    running: float | None = None
    in_engine: float | None = None
    looks: int = 0

    def look(self, server: Server) -> None:
        """Ask it now."""
        gauges, self.looks = server.metrics(), self.looks + 1
        if RUNNING in gauges:
            self.running = max(self.running or 0.0, gauges[RUNNING])
            self.in_engine = max(self.in_engine or 0.0, gauges[RUNNING] + gauges.get(WAITING, 0.0))


@contextmanager
def together(bench: Bench, *, suite: str, mode: Mode) -> Iterator[None]:
    """Watch how many requests the engine has at once around a block of them, and store it.

    As many as the deployment declares must have been there, running or waiting for room; how many of them ran is shown.
    A look takes an engine's time, so none follows once all that are sent at once have been seen to run.
    """
    crowd, is_over = Crowd(), Event()

    def watch() -> None:
        with suppress(EngineFailure):  # whoever waits for the engine's answers will meet it too
            while not is_over.is_set() and (crowd.running or 0.0) < bench.concurrency:
                crowd.look(bench.server)
                is_over.wait(QUICK_SECONDS if crowd.looks < QUICK_LOOKS else SLOW_SECONDS)

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join(LAST_LOOK_SECONDS)
    proofs = [Exercise(suite=suite, mode=mode, counter=RUNNING, moved=crowd.running, expected="any")]
    if declared := bench.deployment.concurrency:
        beyond = None if crowd.in_engine is None else max(crowd.in_engine - (declared - 1), 0.0)
        counter = f"requests at once beyond {declared - 1}"
        proofs.append(Exercise(suite=suite, mode=mode, counter=counter, moved=beyond, expected="moved"))
    bench.sink.exercises(proofs)


def in_parallel(
    bench: Bench, items: Iterable[Item], work: Callable[[Item], Result], *, concurrency: int
) -> Iterator[Result]:
    """Work on items, `concurrency` at a time; results come as they are finished. Raises what `work` raises."""
    pool = ThreadPoolExecutor(concurrency)
    pending = {pool.submit(work, item) for item in items}
    try:
        while pending:
            bench.server.check()
            done, pending = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            yield from (task.result() for task in done)
    finally:  # without waiting: requests under way end with the engine, which is stopped next
        pool.shutdown(wait=False, cancel_futures=True)


def in_batches(
    bench: Bench,
    parts: Sequence[Sequence[Item]],
    work: Callable[[Item], Result],
    *,
    suite: str,
    mode: Mode,
    company: Sequence[Item] = (),
) -> Iterator[tuple[int, Result]]:
    """Work on the items of all parts as `in_parallel`, each result with its part's number; look after each whole part.

    Those of the next part begin while the last ones of a part are under way, so that as many are in flight as the
    deployment declares. `company` is sent after them for that alone: its results are dropped. A look that says enough
    ends it: what is under way is waited for, and belongs to nothing.
    """
    over, left, whole = Event(), [len(part) for part in parts], 0

    def worked(item: tuple[int | None, Item]) -> tuple[int | None, Result | None]:
        return item[0], None if over.is_set() else work(item[1])

    numbered: list[tuple[int | None, Item]] = [
        (part, item) for part, items in enumerate(parts) for item in items
    ]
    numbered += [(None, item) for item in company]
    for batch, result in in_parallel(bench, numbered, worked, concurrency=bench.concurrency):
        if over.is_set() or batch is None or result is None:
            continue
        yield batch, result
        left[batch] -= 1
        while whole < len(parts) - 1 and not left[whole] and not over.is_set():
            whole += 1
            if bench.is_enough(suite, mode, whole):
                over.set()
