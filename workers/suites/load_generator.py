"""vLLM's serving benchmark as a process of its own that sends one load after another, to whichever engine is named."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engines.base import Metrics, Server
from workers.engines.errors import ProbeFailed
from workers.engines.process import Supervised, start
from workers.suites.tool import last_words, watch

NAME = "serving-benchmark"
POLL_SECONDS = 0.02


@dataclass(kw_only=True)
class LoadGenerator:
    """The running benchmark. It measures one load at a time."""

    process: Supervised
    orders: Path
    sent: int = 0

    def send(
        self, server: Server, arguments: Sequence[str], *, seen: Callable[[Metrics], None]
    ) -> Mapping[str, Any]:
        """Send a load to an engine; return the benchmark's result. `seen` gets the engine's counters now and then.

        Raises ProbeFailed if the benchmark fails, EngineDied or EngineStalled if the engine does, and whatever the
        server's `check` raises.
        """
        number, self.sent = self.sent, self.sent + 1
        result = self.orders / f"result-{number}.json"
        draft = self.orders / f"draft-order-{number}.json"
        draft.write_text(json.dumps(["--base-url", server.base_url, *arguments]), encoding="utf-8")
        draft.rename(self.orders / f"order-{number}.json")

        def has_ended(seconds: float) -> bool:
            until = time.monotonic() + seconds
            while self.process.alive and not result.exists() and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
            return result.exists() or not self.process.alive

        def poll(counters: Metrics) -> bool:
            seen(counters)
            return False

        watch(server, has_ended, poll)
        if not server.process.alive:
            raise server.died()
        if not result.exists():
            status = self.process.exit_status
            raise ProbeFailed(f"{NAME} ended with status {status}: {last_words(self.process.log)}")
        document: Mapping[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return document


@contextmanager
def load_generator(
    run_id: str, workdir: Path, *, arguments: Sequence[str], environment: Mapping[str, str]
) -> Iterator[LoadGenerator]:
    """Start the benchmark with the arguments that all loads have in common, and end it with the block."""
    orders = workdir / "loads"
    orders.mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "workers.suites.serving_benchmark", "--orders", str(orders), "--", *arguments
    ]  # fmt: skip
    # One thread: more would take the cores that the engine computes on.
    alone = {**environment, "OMP_NUM_THREADS": "1"}
    process = start(command, run_id=run_id, log=workdir / f"{NAME}.log", environment=alone)
    try:
        yield LoadGenerator(process=process, orders=orders)
    finally:
        process.stop()
