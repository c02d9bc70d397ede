"""How the tables are written: the metadata, and columns and indexes in few words."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    MetaData,
    Text,
    TextClause,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def any_of(values: Iterable[str]) -> str:
    """Sorted, so that the same set always makes the same text."""
    return "(" + ", ".join(f"'{value}'" for value in sorted(str(v) for v in values)) + ")"


def time_column(name: str, *, nullable: bool = False, default: str | None = None) -> Column[object]:
    kind = DateTime(timezone=True)
    return Column(name, kind, nullable=nullable, server_default=_default(default))


def text_column(name: str, *, default: bool = False) -> Column[str]:
    return Column(name, Text, nullable=False, server_default=_default("''" if default else None))


def json_column(name: str, empty: str) -> Column[object]:
    return Column(name, JSONB, nullable=False, server_default=_default(f"'{empty}'"))


def array_column(name: str, of: Integer | DateTime) -> Column[object]:
    return Column(name, ARRAY(of), nullable=False, server_default=_default("'{}'"))


def count_column(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=_default("0"))


def number_column(name: str, *, default: str | None = None) -> Column[float]:
    return Column(name, Double, nullable=False, server_default=_default(default))


def flag_column(name: str, *, default: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=_default(default))


def index(name: str, columns: str, *, where: str | None = None, unique: bool = False) -> Index:
    """Over "cluster, uid DESC"; `where` makes it a partial one."""
    parts = [text(part) if " " in part else part for part in columns.split(", ")]
    condition = None if where is None else text(where)
    return Index(name, *parts, unique=unique, postgresql_where=condition)


def _default(words: str | None) -> TextClause | None:
    return None if words is None else text(words)
