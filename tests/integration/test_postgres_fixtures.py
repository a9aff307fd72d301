"""What tests may expect of the database they are given."""

import psycopg


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("+psycopg", ""))


def test_a_test_gets_a_migrated_database(database_url: str) -> None:
    with connect(database_url) as connection:
        tables = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
        connection.execute("create table left_by_a_test ()")
    assert ("alembic_version",) in tables


def test_nothing_of_another_test_is_in_it(database_url: str) -> None:
    with connect(database_url) as connection:
        found = connection.execute("select 1 from pg_tables where tablename = 'left_by_a_test'").fetchone()
    assert found is None
