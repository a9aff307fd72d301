"""What every command starts from: the settings, and a service to talk to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import click
from pydantic import ValidationError
from pydantic_settings import SettingsError

from gatekeeper.client import Client
from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import FieldProblem, InvalidInput, ServiceUnavailable
from gatekeeper.embedded.service_file import find_running
from gatekeeper.embedded.stack import Stack, running_stack
from gatekeeper.settings import Settings

server_option = click.option(
    "--server",
    metavar="URL",
    envvar="GATEKEEPER_SERVER",
    help="The service to use. Default: the one running here.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A service to talk to. `is_ours`: it stops with this command."""

    client: Client
    is_ours: bool = False


def load_settings() -> Settings:
    """Read the environment. Raises InvalidInput naming the variable."""
    try:
        return Settings()
    except ValidationError as error:
        raise InvalidInput(
            [replace(found, field=_variable(found.field)) for found in field_problems(error)]
        ) from error
    except SettingsError as error:
        problem = FieldProblem(field="environment", problem=str(error), allowed="JSON for lists")
        raise InvalidInput([problem]) from error


def _variable(field: str) -> str:
    """The environment variable of a setting."""
    name = field.upper()
    return name if name in ("DATABASE_URL", "BROKER_URL") else f"GATEKEEPER_{name}"


def say(text: str) -> None:
    """Tell the person at the terminal; results go to stdout, this does not."""
    click.echo(text, err=True)


def find_client(settings: Settings, server: str | None) -> Client | None:
    """A client of the named service, or of the one that runs here, or None."""
    running = None if server else find_running(settings.root)
    url = server or (running.url if running else None)
    return make_client(settings, url) if url else None


def make_client(settings: Settings, url: str, *, sleep: Callable[[float], None] = time.sleep) -> Client:
    """A client with the token of the settings."""
    token = settings.api_token.get_secret_value() if settings.api_token else None
    return Client(url, token=token, sleep=sleep)


@contextmanager
def existing_service(settings: Settings, server: str | None) -> Iterator[Client]:
    """The named service or the one that runs here. Raises ServiceUnavailable if there is none."""
    client = find_client(settings, server)
    if client is None:
        raise ServiceUnavailable(
            f"none is up for {settings.root}; start one with `gatekeeper up` or name --server URL"
        )
    with client:
        yield client


@contextmanager
def embedded_service(settings: Settings) -> Iterator[Service]:
    """A stack of our own, stopped at the end."""
    with running_stack(settings, say=say) as stack, watching_client(settings, stack) as client:
        yield Service(client=client, is_ours=True)


def watching_client(settings: Settings, stack: Stack) -> Client:
    """A client of our own stack that looks after it while it waits."""

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        stack.check()

    return make_client(settings, stack.url, sleep=sleep)
