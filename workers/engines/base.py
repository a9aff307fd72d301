"""What an engine has to offer: argv, environment, and its own account of the configuration in effect."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx
from prometheus_client.parser import text_string_to_metric_families

from gatekeeper import tracing
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.verdict import EngineInfo
from workers.engines.errors import EngineDied, EngineRefused, EngineStalled
from workers.engines.process import Supervised, read_log, start

Metrics = Mapping[str, float]
"""Counter or gauge name -> value, summed over label sets, `_total` kept as served."""

HEALTH_SECONDS = 5.0


class Engine(Protocol):
    """One kind of engine. Methods are pure but for `info`, which looks at the installed build and the device."""

    name: str

    def argv(self, plan: ArmPlan, *, port: int) -> tuple[str, ...]:
        """The command that serves `plan` on loopback at `port`."""
        ...

    def environment(self, plan: ArmPlan, *, gpu: str | None) -> dict[str, str]:
        """Variables to add. `gpu`: the device to use, as CUDA_VISIBLE_DEVICES takes it."""
        ...

    def info(self, plan: ArmPlan, *, gpu: str | None) -> EngineInfo:
        """The installed build and the hardware it will run on."""
        ...

    def effective(
        self, metrics_text: str, models: Mapping[str, object], log: str, *, arguments: Collection[str] = ()
    ) -> EffectiveConfig:
        """The configuration in effect, from what the engine serves and logged. `arguments`: passed through to it."""
        ...

    def has_given_up(self, log: str) -> bool:
        """Whether the log says that the engine will not start, even while its process lives."""
        ...

    def root_cause(self, log: str) -> str:
        """The line of a failed start's log that says why."""
        ...


@dataclass(kw_only=True)
class Server:
    """A ready engine. `check` is called between steps and raises when the run must stop."""

    engine: Engine
    plan: ArmPlan
    base_url: str
    argv: tuple[str, ...]
    process: Supervised
    client: httpx.Client
    stall_seconds: float
    check: Callable[[], None]
    effective: EffectiveConfig = field(default_factory=EffectiveConfig)

    def post(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        """POST JSON and return the JSON answer.

        Raises EngineDied or EngineStalled; httpx.HTTPStatusError for an answer that is an error.
        """
        self.check()
        try:
            response = self.client.post(path, json=body, timeout=self.stall_seconds)
        except httpx.TimeoutException as error:
            raise EngineStalled(f"no answer to {path} within {self.stall_seconds:.0f} s") from error
        except httpx.TransportError as error:
            raise self.died(error) from error
        response.raise_for_status()
        answer: dict[str, object] = response.json()
        return answer

    def metrics(self) -> dict[str, float]:
        """The engine's counters and gauges now. Raises EngineStalled or EngineDied like `post`."""
        try:
            text = self.client.get("/metrics", timeout=self.stall_seconds).text
        except httpx.TimeoutException as error:
            raise EngineStalled(f"no metrics within {self.stall_seconds:.0f} s") from error
        except httpx.TransportError as error:
            raise self.died(error) from error
        return parse_metrics(text)

    def logged(self, mark: str) -> list[str]:
        """What follows `mark` in the engine's log so far, one text per line that has it."""
        lines = self.process.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line.partition(mark)[2] for line in lines if mark in line]

    def died(self, error: Exception | None = None) -> EngineDied:
        """Describe the end of the engine, with the line of its log that says why."""
        self.process.wait(HEALTH_SECONDS)
        text, _ = read_log(self.process.log)
        status = self.process.exit_status
        ended = f"exit status {status}" if status is not None else f"it no longer answers ({error})"
        return EngineDied(f"{ended}; {self.engine.root_cause(text)}")


def parse_metrics(text: str) -> dict[str, float]:
    """Sum each sample name over its label sets. Histogram buckets are left out."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


@contextlib.contextmanager
def launch(
    engine: Engine,
    plan: ArmPlan,
    *,
    run_id: str,
    log: Path,
    gpu: str | None,
    start_seconds: float,
    stall_seconds: float,
    check: Callable[[], None],
) -> Iterator[Server]:
    """Start an engine, wait until it has answered one real completion, and stop it however the block ends.

    Raises EngineRefused, with the root cause if it exits before that, and also if it takes too long.
    """
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    argv = engine.argv(plan, port=port)
    limits = httpx.Limits(max_connections=None)
    # The client outlives the engine: requests under way end with it, and none leaves a socket behind.
    with (
        httpx.Client(base_url=base_url, limits=limits, trust_env=False) as client,
        contextlib.ExitStack() as ending,
    ):
        with tracing.span(
            "launch", run_id=run_id, engine=plan.engine, scheme=plan.config.quantization.scheme
        ):
            process = start(argv, run_id=run_id, log=log, environment=engine.environment(plan, gpu=gpu))
            ending.callback(process.stop)
            server = Server(
                engine=engine, plan=plan, base_url=base_url, argv=argv, process=process, client=client,
                stall_seconds=stall_seconds, check=check,
            )  # fmt: skip
            _wait_ready(server, start_seconds)
        log_text, _ = read_log(log)
        models = client.get("/v1/models", timeout=HEALTH_SECONDS * 4).json()
        metrics_text = client.get("/metrics", timeout=HEALTH_SECONDS * 4).text
        server.effective = engine.effective(metrics_text, models, log_text, arguments=plan.config.engine_args)
        yield server


def _wait_ready(server: Server, start_seconds: float) -> None:
    deadline = time.monotonic() + start_seconds
    while time.monotonic() < deadline:
        server.check()
        text, _ = read_log(server.process.log)
        if not server.process.alive or server.engine.has_given_up(text):
            raise EngineRefused(server.engine.root_cause(text))
        with contextlib.suppress(httpx.TransportError):
            if server.client.get("/health", timeout=HEALTH_SECONDS).status_code == httpx.codes.OK:
                _complete_once(server)
                return
        time.sleep(0.5)
    raise EngineRefused(f"not ready within {start_seconds:.0f} s")


def _complete_once(server: Server) -> None:
    """Readiness means one real completion: a healthy port may stand before a broken engine."""
    body = {"model": server.plan.model.name, "prompt": "Hello", "max_tokens": 1, "temperature": 0.0}
    try:
        server.post("/v1/completions", body)
    except EngineDied as error:
        raise EngineRefused(f"it started but could not complete one token: {error}") from error
    except httpx.HTTPStatusError as error:
        text, _ = read_log(server.process.log)
        cause = (
            server.engine.root_cause(text) if error.response.is_server_error else error.response.text[:300]
        )
        raise EngineRefused(f"it started but could not complete one token: {cause}") from error


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
