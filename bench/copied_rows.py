"""The rows of some jobs written once more: by psycopg's COPY alone, into an empty database beside.

This is the least that Python can do to store them. The tables have the same indexes and triggers.
"""
# ruff: noqa: S608  # only names of our own tables are put into these texts

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg.rows import TupleRow

from db import migrate

COPIED = "bench_copied"
_NEW_JOBS = "SELECT uid FROM jobs WHERE uid > %(after)s::uuid"
_ROWS_OF = {
    "specs": "spec_id IN (SELECT spec_id FROM jobs WHERE uid > %(after)s::uuid)",
    "jobs": "uid > %(after)s::uuid",
    "timelines": f"uid IN ({_NEW_JOBS})",
    "audit_log": "seq > %(audited)s",
}
"""Tables that a submission writes, in the order in which they refer to each other."""
_COLUMNS = """
SELECT column_name, data_type IN ('json', 'jsonb') FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = %s AND is_generated = 'NEVER'
ORDER BY ordinal_position
"""
# Keys grow with time, so what is greater was stored later.
_NOW = """
SELECT coalesce((SELECT max(uid::text) FROM jobs), '00000000-0000-0000-0000-000000000000'),
    (SELECT coalesce(max(seq), 0) FROM audit_log)
"""
_TENANTS = "INSERT INTO tenants (tenant_id) VALUES (%s) ON CONFLICT DO NOTHING"


@dataclass(frozen=True, slots=True)
class StoredMark:
    """What was stored so far."""

    job_uid: str
    audited: int


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table, as Python has them."""

    table: str
    columns: str
    rows: list[TupleRow]


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """From the database of a stack into the one beside it."""

    stack: psycopg.Connection
    beside: psycopg.Connection

    def mark(self) -> StoredMark:
        found = self.stack.execute(_NOW).fetchone()
        assert found is not None
        return StoredMark(str(found[0]), int(found[1]))

    def since(self, mark: StoredMark) -> list[TableRows]:
        """What was written after the mark."""
        words = {"after": mark.job_uid, "audited": mark.audited}
        return [self._rows(table, where, words) for table, where in _ROWS_OF.items()]

    def _rows(self, table: str, where: str, words: dict[str, object]) -> TableRows:
        columns = self.stack.execute(_COLUMNS, (table,)).fetchall()
        # Documents travel as the text that they are, as the service's own do.
        picked = ", ".join(f"{name}::text" if is_json else name for name, is_json in columns)
        query = f"SELECT {picked} FROM {table} WHERE {where}"
        rows = self.stack.execute(query.encode(), words).fetchall()
        return TableRows(table, ", ".join(name for name, _ in columns), rows)

    def copy(self, tables: list[TableRows]) -> float:
        """Seconds until all of them are durable."""
        began = time.perf_counter()
        with self.beside.transaction(), self.beside.cursor() as cursor:
            for found in tables:
                query = f"COPY {found.table} ({found.columns}) FROM STDIN"
                with cursor.copy(query.encode()) as copy:
                    for row in found.rows:
                        copy.write_row(row)
        return time.perf_counter() - began


@contextlib.contextmanager
def copied_rows(url: str, tenant_id: str) -> Iterator[CopiedRows]:
    """An empty database on the server of this one."""
    beside = url_beside(url, COPIED)
    with psycopg.connect(url, autocommit=True) as stack:
        stack.execute(f"CREATE DATABASE {COPIED}".encode())
        migrate.upgrade(beside)
        with psycopg.connect(beside, autocommit=True) as connection:
            connection.execute(_TENANTS, (tenant_id,))
            yield CopiedRows(stack, connection)


def url_beside(url: str, name: str) -> str:
    """Another database of the same server."""
    base, _, rest = url.partition("?")
    return f"{base.rpartition('/')[0]}/{name}" + (f"?{rest}" if rest else "")
