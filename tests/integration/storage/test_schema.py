"""The migrations and what the tables refuse."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import IntegrityError

from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.storage import arm_tables, tables, webhook_tables
from gatekeeper.storage.base import Base
from gatekeeper.storage.database import check, driver_url, make_engine, make_sessions, transaction
from gatekeeper.storage.migrate import migrating, upgrade

TABLES = (tables, arm_tables, webhook_tables)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A migrated database."""
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


def test_the_migrations_make_exactly_the_mapped_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_the_last_migration_can_be_taken_back_and_applied_again(engine: Engine, database_url: str) -> None:
    with migrating(database_url) as config:
        command.downgrade(config, "-1")
    with engine.connect() as connection:
        assert not inspect(connection).has_table("answers")
    upgrade(database_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_processes_that_migrate_at_the_same_time_wait_for_each_other(database_url: str) -> None:
    engine = make_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("drop schema public cascade"))
        connection.execute(text("create schema public"))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(upgrade, [database_url] * 2))
    check(make_sessions(engine))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_a_database_that_was_never_migrated_is_not_ready(database_url: str) -> None:
    engine = make_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("drop table alembic_version"))
    with pytest.raises(ServiceUnavailable, match="alembic_version"):
        check(make_sessions(engine))
    engine.dispose()


def test_a_database_that_is_away_is_a_service_that_does_not_answer() -> None:
    engine = make_engine("postgresql://127.0.0.1:1/nowhere")
    with pytest.raises(ServiceUnavailable, match="PostgreSQL"), transaction(make_sessions(engine)) as session:
        session.execute(text("select 1"))
    engine.dispose()


@pytest.mark.parametrize("value", ["'NaN'", "'Infinity'", "'-Infinity'", "null"])
def test_a_measurement_is_finite_or_null_with_a_reason(engine: Engine, value: str) -> None:
    statement = (
        "insert into measurements (arm_id, suite, mode, item_id, metric, cluster, value) "
        f"values (1, 's', 'cold', 'i', 'm', 'c', {value})"
    )
    with pytest.raises(IntegrityError, match="ck_measurements"), engine.begin() as connection:
        connection.execute(text(statement))


@pytest.mark.parametrize("url", ["postgres://h/d", "postgresql://h/d", "postgresql+psycopg://h/d"])
def test_the_usual_spellings_of_a_url_are_understood(url: str) -> None:
    assert driver_url(url) == "postgresql+psycopg://h/d"


@pytest.mark.parametrize("url", ["sqlite:///x.db", "mysql://h/d", "nonsense"])
def test_another_database_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="postgresql://"):
        driver_url(url)
