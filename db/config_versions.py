"""PostgreSQL behind core.configuration.ConfigVersions."""
# ruff: noqa: S608  # only our own lists of columns are put into these texts

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from core.configuration import (
    FILES_MAX,
    VERSIONS_MAX,
    ConfigPage,
    ConfigVersion,
    FileSeen,
    audited,
)
from core.errors import NotFound
from core.job import FINAL, JobStatus
from core.text import clean
from db.audit_rows import AUDIT, INSERT_AUDIT
from db.rows import Row, mapping_of, to_json
from db.store import Connection, PostgresStore

PAGE_MAX = 500
_SELECT = "SELECT version, at, author, source, digest, document::text, diff::text, rollback_of"
_LIVE = [str(s) for s in JobStatus if s not in FINAL and s is not JobStatus.QUEUED]
# Two questions, each with an index of its own: finished jobs are never looked at.
_JOBS_IN = """
SELECT cluster, sum(n)::int FROM (
    SELECT cluster, count(*) AS n FROM jobs
    WHERE status = 'QUEUED' AND cluster = ANY(%(clusters)s::text[]) GROUP BY 1
    UNION ALL
    SELECT cluster, count(*) FROM jobs
    WHERE status = ANY(%(live)s::text[]) AND cluster = ANY(%(clusters)s::text[]) GROUP BY 1
) AS counted GROUP BY 1
"""
_RECORD = """
INSERT INTO config_versions (version, at, author, source, digest, document, diff, rollback_of)
SELECT %(version)s, %(at)s, %(author)s, %(source)s, %(digest)s, %(document)s::json,
    %(diff)s::jsonb, %(rollback_of)s::int
WHERE %(version)s = 1 + coalesce((SELECT max(version) FROM config_versions), 0)
    AND NOT EXISTS (SELECT 1 FROM jobs
        WHERE status = 'QUEUED' AND cluster = ANY(%(clusters)s::text[]))
    AND NOT EXISTS (SELECT 1 FROM jobs
        WHERE status = ANY(%(live)s::text[]) AND cluster = ANY(%(clusters)s::text[]))
ON CONFLICT DO NOTHING
"""
# This very file, or else the one at the same path that was looked at last.
_FILE_SEEN = """
SELECT digest FROM config_files WHERE path = %(path)s
ORDER BY host = %(host)s DESC, at DESC LIMIT 1
"""
_SAW = """
INSERT INTO config_files (host, path, digest) VALUES (%(host)s, %(path)s, %(digest)s)
ON CONFLICT (host, path) DO UPDATE SET digest = excluded.digest, at = clock_timestamp()
"""
_FORGET_FILES = """
DELETE FROM config_files WHERE (host, path) IN
    (SELECT host, path FROM config_files ORDER BY at DESC OFFSET %s)
"""


class PostgresConfigVersions:
    """Over the store's connections."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def newest_number(self) -> int:
        rows = await self._ask("SELECT max(version) FROM config_versions", {})
        return int(rows[0][0] or 0)

    async def newest(self) -> ConfigVersion | None:
        query = f"{_SELECT} FROM config_versions ORDER BY version DESC LIMIT 1"
        rows = await self._ask(query, {})
        return _version_of(rows[0]) if rows else None

    async def version(self, number: int) -> ConfigVersion:
        query = f"{_SELECT} FROM config_versions WHERE version = %(number)s::bigint"
        rows = await self._ask(query, {"number": number})
        if not rows:
            raise NotFound(f"there is no version {number} of the configuration")
        return _version_of(rows[0])

    async def history(self, size: int, before: int | None) -> ConfigPage:
        size = max(1, min(size, PAGE_MAX))
        query = f"""
            {_SELECT}, (SELECT count(*) FROM config_versions) FROM config_versions
            WHERE %(before)s::bigint IS NULL OR version < %(before)s::bigint
            ORDER BY version DESC LIMIT %(size)s
        """
        rows = await self._ask(query, {"before": before, "size": size + 1})
        shown = tuple(_version_of(row) for row in rows[:size])
        next_before = shown[-1].version if len(rows) > size else None
        return ConfigPage(shown, rows[0][-1] if rows else 0, next_before)

    async def last_with(self, digest: str) -> int | None:
        query = """
            SELECT max(version) FROM config_versions
            WHERE digest = %(digest)s AND rollback_of IS NULL
        """
        found: int | None = (await self._ask(query, {"digest": digest}))[0][0]
        return found

    async def file_seen(self, host: str, path: str) -> str | None:
        rows = await self._ask(_FILE_SEEN, {"host": clean(host), "path": clean(path)})
        return str(rows[0][0]) if rows else None

    async def saw(self, seen: FileSeen) -> None:
        async with self._store.connection() as connection, connection.transaction():
            await _saw(connection, seen)

    async def jobs_in(self, clusters: Collection[str]) -> Mapping[str, int]:
        words = {"clusters": list(clusters), "live": _LIVE}
        return dict(await self._ask(_JOBS_IN, words)) if clusters else {}

    async def record(
        self, new: ConfigVersion, unused: Collection[str], seen: FileSeen | None = None
    ) -> bool:
        words = {
            "version": new.version,
            "at": new.at,
            "author": clean(new.author),
            "source": clean(new.source),
            "digest": new.digest,
            "document": to_json(new.document),
            "diff": to_json(new.diff),
            "rollback_of": new.rollback_of,
            "clusters": list(unused),
            "live": _LIVE,
        }
        async with self._store.connection() as connection, connection.transaction():
            written = (await connection.execute(_RECORD, words)).rowcount
            if written:
                old = new.version - VERSIONS_MAX
                await connection.execute("DELETE FROM config_versions WHERE version <= %s", (old,))
                await connection.execute(INSERT_AUDIT, AUDIT.arrays([audited(new)]))
                if seen is not None:
                    await _saw(connection, seen)
        return written == 1

    async def _ask(self, query: str, words: Mapping[str, object]) -> list[Row]:
        async with self._store.connection() as connection:
            return await (await connection.execute(query, words)).fetchall()


async def _saw(connection: Connection, seen: FileSeen) -> None:
    words = {"host": clean(seen.host), "path": clean(seen.path), "digest": seen.digest}
    await connection.execute(_SAW, words)
    await connection.execute(_FORGET_FILES, (FILES_MAX,))


def _version_of(row: Row) -> ConfigVersion:
    version, at, author, source, digest, document, diff, rollback_of = row[:8]
    lines = msgspec.json.decode(diff, type=tuple[str, ...])
    return ConfigVersion(
        version, at, author, source, digest, mapping_of(document), lines, rollback_of
    )
