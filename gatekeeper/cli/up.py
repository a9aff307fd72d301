"""`gatekeeper up`, and the two parts of it that a deployment runs by themselves: `serve` and `migrate`."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from typing import Final

import click
import uvicorn
from uvicorn.config import LOGGING_CONFIG

from gatekeeper.cli.environment import load_settings, say
from gatekeeper.cli.signals import Interrupted, interruptible
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.embedded.stack import Stack, migrated, running_stack
from gatekeeper.logs import CONFIG

WATCH_S = 0.5
NOT_STARTED: Final = 3
"""The exit code of a server that could not start, as uvicorn's own."""


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Default: GATEKEEPER_PORT (8800), or the next free one."
)
def up(*, port: int | None) -> None:
    """Run the whole service here, in the foreground: database, API, web pages, one worker.

    PostgreSQL is the embedded one unless DATABASE_URL names another; likewise the broker and BROKER_URL.
    Everything is kept in GATEKEEPER_HOME (default .gatekeeper). Ctrl-C or SIGTERM stops all of it.
    """
    settings = load_settings()
    try:
        with interruptible(), running_stack(settings, say=say, port=port) as stack:
            click.echo(f"gatekeeper is up at {stack.url}  (Ctrl-C stops it)")
            for name, log in stack.logs.items():
                say(f"  {name} log: {log}")
            serve_until_interrupted(stack)
    except Interrupted:
        say("stopped")


def serve_until_interrupted(stack: Stack) -> None:
    """Keep the stack up. Raises Interrupted, or StackFailed."""
    while True:
        time.sleep(WATCH_S)
        stack.check()


@click.command()
@click.option("--host", help="Default: GATEKEEPER_HOST (127.0.0.1).")
@click.option("--port", type=click.IntRange(1, 65535), help="Default: GATEKEEPER_PORT (8800).")
@click.option("--fd", type=click.IntRange(3), hidden=True, help="An open, listening socket, from `up`.")
def serve(*, host: str | None, port: int | None, fd: int | None) -> None:
    """Run the API and the web pages alone; DATABASE_URL says where the database is."""
    settings = load_settings()
    _need_database(settings.database_url)
    listeners = None if fd is None else [_listener(fd)]
    server = uvicorn.Server(
        uvicorn.Config(
            "gatekeeper.app:create_app",
            factory=True,
            host=host or settings.host,
            port=port or settings.port,
            timeout_graceful_shutdown=5,
            log_config=CONFIG if settings.log_format == "json" else LOGGING_CONFIG,
        )
    )
    with suppress(KeyboardInterrupt):
        server.run(sockets=listeners)
    if not server.started:
        sys.exit(NOT_STARTED)


def _listener(fd: int) -> socket.socket:
    """The socket of that number, of whatever family it is. Raises InvalidInput."""
    try:
        listener = socket.socket(fileno=fd)
        if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return listener
    except OSError:
        pass
    problem = FieldProblem(field="--fd", problem=f"{fd} is none", allowed="an open, listening socket")
    raise InvalidInput([problem])


@click.command()
def migrate() -> None:
    """Bring the database of DATABASE_URL to this version's schema."""
    migrated(_need_database(load_settings().database_url))
    click.echo("the database is up to date")


def _need_database(url: str | None) -> str:
    if url is None:
        raise InvalidInput(
            [FieldProblem(field="DATABASE_URL", problem="is not set", allowed="postgresql://…")]
        )
    return url
