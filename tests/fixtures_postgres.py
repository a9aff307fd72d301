"""Real PostgreSQL for tests: one embedded server per session, one fresh, migrated database per test that asks."""

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest
from sqlalchemy import make_url

from gatekeeper.embedded import postgres

TEMPLATE = "template_migrated"
_numbers = count(1)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that this session owns; its default database is empty."""
    data_dir = tmp_path_factory.mktemp("postgres") / "data"
    with postgres.running(data_dir, settings=postgres.FAST) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """Name of a database to which all migrations were applied, once; copies of it take no time."""
    from gatekeeper.storage.migrate import upgrade

    _administer(postgres_server, f"create database {TEMPLATE}")
    upgrade(url_of(postgres_server, TEMPLATE))
    return TEMPLATE


@pytest.fixture
def database_url(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """URL of a fresh, migrated, empty database for one test."""
    yield from _fresh(postgres_server, postgres_template)


@pytest.fixture(scope="module")
def module_database_url(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """The same for the tests of one module."""
    yield from _fresh(postgres_server, postgres_template)


def _fresh(server: str, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    _administer(server, f"create database {name} template {template}")
    yield url_of(server, name)
    _administer(server, f"drop database {name} with (force)")


def url_of(server: str, database: str) -> str:
    """The server's URL with another database."""
    return server.replace("/gatekeeper?", f"/{database}?")


def _administer(server: str, statement: str) -> None:
    url = make_url(server)
    with psycopg.connect(
        host=str(url.query["host"]), user=url.username, dbname="postgres", autocommit=True
    ) as connection:
        connection.execute(statement)
