"""The database without a service: for the operator's commands and for `plan`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gatekeeper.embedded import postgres, service_file
from gatekeeper.embedded.stack import database_dir, migrated
from gatekeeper.settings import Settings
from gatekeeper.storage.database import Sessions, make_engine, make_sessions


@contextmanager
def open_database(settings: Settings) -> Iterator[Sessions]:
    """The database of DATABASE_URL, or the embedded one, which runs meanwhile if no stack runs it."""
    if settings.database_url:
        with _sessions(migrated(settings.database_url)) as sessions:
            yield sessions
    elif service_file.find_running(settings.root):
        with _sessions(postgres.start(database_dir(settings))) as sessions:
            yield sessions
    else:
        with (
            service_file.hold(settings.root),
            postgres.running(database_dir(settings)) as url,
            _sessions(migrated(url)) as sessions,
        ):
            yield sessions


@contextmanager
def reachable_database(settings: Settings) -> Iterator[Sessions | None]:
    """The database if it can be had without starting anything, else None."""
    url = settings.database_url
    if url is None and service_file.find_running(settings.root):
        url = postgres.start(database_dir(settings))
    if url is None:
        yield None
        return
    with _sessions(url) as sessions:
        yield sessions


@contextmanager
def _sessions(url: str) -> Iterator[Sessions]:
    engine = make_engine(url)
    try:
        yield make_sessions(engine)
    finally:
        engine.dispose()
