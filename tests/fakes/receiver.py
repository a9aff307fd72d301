"""A server that takes webhooks' messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def receiver(status: int = 204) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """A server; what it got is (Host header, path, body)."""
    got: list[tuple[str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["Host"], self.path, body))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://169.254.169.254/")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield f"http://receiver.example:{server.server_port}/hook?x=1", got
        finally:
            server.shutdown()
            thread.join()
