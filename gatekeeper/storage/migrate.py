"""Bring a database to the newest schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from gatekeeper.storage.database import make_engine

MIGRATIONS = Path(__file__).parents[2] / "migrations"
LOCK = 4_731_902_611
"""The advisory lock that keeps two processes from migrating at the same time; any number of our own."""


def upgrade(url: str) -> None:
    """Run all migrations that the database lacks, in one transaction."""
    with migrating(url) as config:
        command.upgrade(config, "head")


@contextmanager
def migrating(url: str) -> Iterator[Config]:
    """Alembic's configuration for one transaction in which no other process migrates."""
    engine = make_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
            config.attributes["connection"] = connection
            yield config
    finally:
        engine.dispose()
