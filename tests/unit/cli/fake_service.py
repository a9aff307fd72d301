"""A service that says what a test wants it to say, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any] | str
RUN = "/api/v1/runs/r-1"


@dataclass
class FakeService:
    """Replies by `METHOD path`; of several the last repeats. `seen` keeps what was asked."""

    url: str
    replies: dict[str, list[tuple[int, Body]]] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    on_request: Callable[[str], None] = lambda _: None

    def reply(self, route: str, *answers: tuple[int, Body] | Body) -> None:
        """Answer `route` with these, one after the other."""
        self.replies[route] = [answer if isinstance(answer, tuple) else (200, answer) for answer in answers]

    def plays(self, *documents: dict[str, Any]) -> None:
        """Accept a run that then shows these documents."""
        self.reply(
            "POST /api/v1/runs", (202, {"run_id": "r-1", "name": documents[0]["name"], "state": "queued"})
        )
        self.reply(f"GET {RUN}", *documents)

    def bodies(self, route: str) -> list[dict[str, Any]]:
        """The bodies that came in on `route`."""
        return [body for seen, body, _ in self.seen if seen == route]

    def answer(self, route: str, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Body]:
        """The next reply."""
        self.seen.append((route, body, headers))
        self.on_request(route)
        answers = self.replies.get(
            route.partition("?")[0], [(404, {"title": "Not found", "detail": f"no {route}"})]
        )
        return answers.pop(0) if len(answers) > 1 else answers[0]


@contextmanager
def fake_service() -> Iterator[FakeService]:
    """Serve on a free port while inside."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer(json.loads(content) if content else {})

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def _answer(self, body: dict[str, Any]) -> None:
            status, answer = service.answer(f"{self.command} {self.path}", body, dict(self.headers))
            content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service = FakeService(url=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
