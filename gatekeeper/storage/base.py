"""The base of the mappings, the column types and the database's clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from sqlalchemy import BigInteger, Dialect, Float, MetaData, Text, TypeDecorator, Uuid, func
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP
from sqlalchemy.orm import DeclarativeBase

from gatekeeper.domain.text import storable

Json: TypeAlias = dict[str, Any]
JsonList: TypeAlias = list[Any]

NOW = func.clock_timestamp()
"""The database's clock. All times are its times, so the clocks of API and worker machines need not agree."""


class StorableText(TypeDecorator[str]):
    """Text from anywhere: engines' logs and callers' words go in whatever they contain."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Clean a value on its way in."""
        return None if value is None else storable(value)


class Base(DeclarativeBase):
    """Declarative base; constraint names are fixed so that migrations can refer to them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy declares it so
        str: StorableText(),
        int: BigInteger(),
        float: Float(53),
        datetime: TIMESTAMP(timezone=True),
        UUID: Uuid(),
        Json: JSONB(none_as_null=True),
        JsonList: JSONB(none_as_null=True),
    }
