"""What the jobs of an array or a gang have in common: stored once, read once, kept while it fits.

A row of `jobs` with a `spec_id` has in its own document its index and what SQL adds up; all else
is in the table `specs`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.job import Job
from core.job_fields import SPEC_FIELDS, JobSpec
from core.members import SharedMember
from db.rows import SPEC_ID, BulkColumn, Shape, job_of, spec_of, to_json

Connection = AsyncConnection[TupleRow]
KEPT_BYTES_MAX = 32 * 1024 * 1024
"""As JSON; a document that is larger is still used, once."""
READ_MAX = 100
"""Documents that are read at once."""
_ADDED_UP = ("gpu_count", "cpu_cores", "memory_mb", "gpu_memory_mb")
"""Fields that db/tenants.py adds up in SQL."""
_DEFAULTS = {field.attribute: field.default for field in SPEC_FIELDS}
_SELECT = "SELECT spec_id::text, document::text FROM specs WHERE spec_id = ANY(%s::uuid[])"
_SPEC: Shape[tuple[str, JobSpec]] = Shape(
    (
        BulkColumn("spec_id", "uuid", lambda row: row[0]),
        BulkColumn("tenant_id", "text", lambda row: row[1].tenant_id),
        BulkColumn("document", "jsonb", lambda row: to_json(row[1])),
    )
)
_INSERT = f"INSERT INTO specs ({_SPEC.names}) SELECT {_SPEC.names} FROM {_SPEC.rows}"  # noqa: S608


def own_document(spec: JobSpec, shared: SharedMember) -> str:
    """What a member's row holds of its spec."""
    own: dict[str, object] = {} if shared.member.index is None else {"index": shared.member.index}
    own |= {k: value for k in _ADDED_UP if (value := getattr(spec, k)) != _DEFAULTS[k]}
    return msgspec.json.encode(own).decode()


async def write_specs(connection: Connection, specs: Mapping[str, JobSpec]) -> None:
    """Before the rows that refer to them."""
    if specs:
        await connection.execute(_INSERT, _SPEC.arrays(list(specs.items())))


class SharedSpecs:
    """The documents that were read last."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[str, tuple[JobSpec, int]] = OrderedDict()

    async def jobs(self, connection: Connection, rows: Sequence[TupleRow]) -> list[Job]:
        """Rows of JOB_SELECT as jobs."""
        specs = await self.of_rows(connection, rows)
        return [job_of(row, specs) for row in rows]

    async def of_rows(
        self, connection: Connection, rows: Iterable[TupleRow]
    ) -> Mapping[str, JobSpec]:
        """What these rows of JOB_SELECT refer to."""
        return await self.of(connection, [row[SPEC_ID] for row in rows if row[SPEC_ID] is not None])

    async def of(self, connection: Connection, spec_ids: Iterable[str]) -> Mapping[str, JobSpec]:
        wanted = dict.fromkeys(spec_ids)
        if not wanted:
            return {}
        found = {spec_id: self._known[spec_id][0] for spec_id in wanted if spec_id in self._known}
        for spec_id in found:
            self._known.move_to_end(spec_id)
        missing = [spec_id for spec_id in wanted if spec_id not in found]
        for begin in range(0, len(missing), READ_MAX):
            part = missing[begin : begin + READ_MAX]
            cursor = await connection.execute(_SELECT, (part,), binary=True)
            for spec_id, document in await cursor.fetchall():
                found[spec_id] = self._keep(spec_id, document)
        return found

    def _keep(self, spec_id: str, document: str) -> JobSpec:
        spec = spec_of(document)
        if spec_id not in self._known:
            self._known[spec_id] = (spec, len(document))
            self._bytes += len(document)
        while self._bytes > self._bytes_max:
            self._bytes -= self._known.popitem(last=False)[1][1]
        return spec
