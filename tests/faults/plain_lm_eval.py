"""A program: what people do today. lm-eval on short prompts through each fault, averages per task, nothing paired.

Writes fault -> task -> accuracy, or fault -> the error that ended it. Settings are lm-eval's own defaults (three tries
per request among them) but for the timeout. The proxies run in this process before one engine, which answers an equal
scoring request once: its answers to those are reproducible to the last bit, and a fault sees each of them anew. Faults
that concurrency brings about ask it every time, since requests that are answered at once are never under way together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.faults.program import connected
from tests.faults.proxy import Proxy
from tests.faults.table import FAULTS
from workers.engines.base import free_port
from workers.suites.items import BUNDLED_TASKS

TIMEOUT_SECONDS = 15


class Remembering(httpx.AsyncBaseTransport):
    """Sends a request that is equal to an earlier scoring request no further."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self._answers: dict[bytes, asyncio.Task[tuple[int, bytes]]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer from memory, or ask."""
        content = await request.aread()
        if b'"echo":true' not in content:
            return await self._inner.handle_async_request(request)
        if content not in self._answers:
            self._answers[content] = asyncio.ensure_future(self._asked(request))
        status, body = await asyncio.shield(self._answers[content])
        return httpx.Response(status, content=body, headers={"content-type": "application/json"})

    async def _asked(self, request: httpx.Request) -> tuple[int, bytes]:
        answer = await self._inner.handle_async_request(request)
        return answer.status_code, await answer.aread()


def main() -> None:
    """Evaluate every fault in turn."""
    arguments = parser().parse_args()
    port = free_port()
    serve(port, arguments.upstream, arguments.faults)
    results = {
        fault: evaluated(f"http://127.0.0.1:{port}/{fault}/v1/completions", arguments)
        for fault in arguments.faults
    }
    arguments.output.write_text(json.dumps(results, indent=1), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    own = argparse.ArgumentParser()
    for name in ("--model", "--tokenizer", "--upstream"):
        own.add_argument(name, required=True)
    own.add_argument("--tasks", nargs="+", required=True)
    own.add_argument("--items", type=int, required=True)
    own.add_argument("--output", type=Path, required=True)
    own.add_argument("--faults", nargs="+", choices=FAULTS, required=True)
    return own


def serve(port: int, upstream: str, faults: Sequence[str]) -> None:
    """Every fault's proxy at a path of its own, in a thread that ends with this program."""
    asking, remembering = connected(upstream), connected(upstream)
    remembering._transport = Remembering(remembering._transport)
    clients = {name: asking if FAULTS[name].needs_concurrency else remembering for name in faults}
    proxies = [Mount(f"/{name}", Proxy(fault=FAULTS[name], upstream=clients[name]).app()) for name in faults]
    config = uvicorn.Config(Starlette(routes=proxies), port=port, log_level="warning", ws="none")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)


def evaluated(base_url: str, arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Accuracy by task, or what lm-eval died of."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    model_args = {
        "base_url": base_url, "model": arguments.model, "tokenizer": arguments.tokenizer,
        "tokenizer_backend": "huggingface", "num_concurrent": 8, "timeout": TIMEOUT_SECONDS,
    }  # fmt: skip
    manager = TaskManager(include_path=str(BUNDLED_TASKS), include_defaults=False)
    try:
        results = simple_evaluate(
            model="local-completions", model_args=model_args, tasks=arguments.tasks, limit=arguments.items,
            bootstrap_iters=0, task_manager=manager,
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001 - whatever it dies of is the result
        return {"error": f"{error!r:.200}"}
    return {task: figures["acc,none"] for task, figures in results["results"].items()}


if __name__ == "__main__":
    main()
