"""Connections: an engine for a URL, sessions, and the one transaction of a use case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.domain.text import storable

Sessions: TypeAlias = sessionmaker[Session]

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 120


def driver_url(url: str) -> str:
    """Return `url` for SQLAlchemy with psycopg 3, whatever of the usual spellings it has."""
    scheme, separator, rest = url.partition("://")
    known = {"postgres", "postgresql", "postgresql+psycopg"}
    if not separator or scheme not in known:
        raise ValueError(f"DATABASE_URL must begin with postgresql://, not {scheme!r}")
    return f"postgresql+psycopg://{rest}"


def make_engine(url: str) -> Engine:
    """Return a pool of connections to PostgreSQL, none open yet. Raises ValueError for another database."""
    return create_engine(
        driver_url(url),
        pool_size=10,
        max_overflow=20,
        pool_timeout=CONNECT_SECONDS,
        pool_pre_ping=True,
        json_serializer=_dump_json,
        connect_args={
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "gatekeeper",
            "options": f"-c timezone=UTC -c statement_timeout={STATEMENT_SECONDS}s -c lock_timeout=30s",
        },
    )


def make_sessions(engine: Engine) -> Sessions:
    """Return what opens sessions on `engine`."""
    return sessionmaker(engine, expire_on_commit=False)


@contextmanager
def transaction(sessions: Sessions) -> Iterator[Session]:
    """One use case: commits at the end, rolls back on any error. Raises ServiceUnavailable."""
    try:
        with sessions.begin() as session:
            yield session
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        raise ServiceUnavailable(f"PostgreSQL: {_first_line(error)}") from error


def check(sessions: Sessions) -> None:
    """Raise ServiceUnavailable unless the database answers and has been migrated."""
    try:
        with transaction(sessions) as session:
            session.execute(text("select version_num from alembic_version")).one()
    except SQLAlchemyError as error:
        raise ServiceUnavailable(f"PostgreSQL: {_first_line(error)}") from error


def _first_line(error: SQLAlchemyError) -> str:
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


def _dump_json(value: Any) -> str:
    dumped = json.dumps(value, allow_nan=False)
    if "\\u0000" in dumped or "\\ud" in dumped:
        dumped = json.dumps(_clean(value), allow_nan=False)
    return dumped


def _clean(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case dict():
            return {_clean(key): _clean(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_clean(entry) for entry in value]
        case _:
            return value
