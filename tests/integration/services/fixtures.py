"""One migrated database for many tests, emptied before each: ten times as quick as a database per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gatekeeper.storage.base import Base
from gatekeeper.storage.database import make_engine, make_sessions
from tests.fixtures_postgres import _fresh
from tests.integration.services.seeds import World, make_settings, make_world


@pytest.fixture(scope="session")
def shared_engine(postgres_server: str, postgres_template: str) -> Iterator[Engine]:
    """A pool of connections to a database of these tests' own."""
    for url in _fresh(postgres_server, postgres_template):
        engine = make_engine(url)
        yield engine
        engine.dispose()


@pytest.fixture
def clean_engine(shared_engine: Engine) -> Engine:
    """The same, with all tables empty."""
    tables = ", ".join(table.name for table in Base.metadata.sorted_tables)
    with shared_engine.begin() as connection:
        connection.execute(text(f"truncate {tables} restart identity"))
    return shared_engine


@pytest.fixture
def world(clean_engine: Engine, tmp_path: Path) -> World:
    """A service that knows one model."""
    url = clean_engine.url.render_as_string(hide_password=False)
    return make_world(make_sessions(clean_engine), make_settings(url, tmp_path))
