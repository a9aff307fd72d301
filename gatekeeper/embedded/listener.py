"""The address at which the embedded service can be reached, taken before anything is started."""

from __future__ import annotations

import errno
import socket
from typing import Final

from gatekeeper.domain.errors import FieldProblem, GatekeeperError, InvalidInput

PORTS_TRIED: Final = 50


class StackFailed(GatekeeperError):
    """The embedded service could not be started, or did not stay up."""


def listen(host: str, first: int, *, chosen: int | None) -> socket.socket:
    """A socket that listens at the chosen port, or else at `first` or the next that is free.

    Raises InvalidInput for a chosen port that is taken, StackFailed where there is none.
    """
    if chosen is None:
        return listener_from(host, first)
    listener = listener_at(host, chosen)
    if listener is None:
        allowed = "a free one; without --port one is found"
        raise InvalidInput([FieldProblem(field="port", problem=f"{chosen} is taken", allowed=allowed)])
    return listener


def listener_at(host: str, port: int) -> socket.socket | None:
    """A socket that listens there, or None where another one does. Raises StackFailed where none ever could.

    It is taken at once and kept, since whoever merely looked could find another stack there a moment later.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise StackFailed(f"nothing can listen on {host}, port {port}: {error.strerror or error}") from error
    return listener


def listener_from(host: str, first: int) -> socket.socket:
    """A socket that listens at `first`, or at the next port that is free. Raises StackFailed."""
    for port in range(first, min(first + PORTS_TRIED, 65536)):
        listener = listener_at(host, port)
        if listener is not None:
            return listener
    raise StackFailed(f"no free port on {host} from {first} on; name one with --port")
