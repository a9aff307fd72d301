"""Alembic's entry: migrates over the connection it is handed, or else over DATABASE_URL."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from gatekeeper.settings import Settings
from gatekeeper.storage import arm_tables, tables
from gatekeeper.storage.base import Base
from gatekeeper.storage.database import make_engine

TABLES = (tables, arm_tables)
"""Imported for what importing them declares on the metadata."""


def migrate(connection: Connection) -> None:
    """Run the migrations on `connection`."""
    context.configure(connection=connection, target_metadata=Base.metadata, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


handed = context.config.attributes.get("connection")
if isinstance(handed, Connection):
    migrate(handed)
else:
    url = Settings().database_url
    if url is None:
        raise SystemExit("set DATABASE_URL to the database to migrate")
    with make_engine(url).begin() as own:
        migrate(own)
