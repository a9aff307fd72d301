"""A server that takes webhooks' messages."""

from __future__ import annotations

import socket
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


@contextmanager
def slow_receiver() -> Iterator[str]:
    """A server that answers one sign at a time and never comes to an end."""
    ended = threading.Event()

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not ended.wait(0.02):
                    connection.sendall(b"a")
            except OSError:
                return  # the other side has left

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        try:
            yield f"http://receiver.example:{listener.getsockname()[1]}/"
        finally:
            ended.set()
            thread.join()
