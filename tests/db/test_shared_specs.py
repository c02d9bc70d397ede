from __future__ import annotations

import json
from typing import Any, cast

from core.job_fields import JobSpec
from core.members import Member, SharedMember
from db.rows import to_json
from db.shared_specs import Connection, SharedSpecs, own_document

UIDS = [f"018f0000-0000-7000-8000-{n:012d}" for n in range(9)]


class Table:
    """Answers the one question that is asked, and counts."""

    def __init__(self, specs: dict[str, JobSpec]) -> None:
        self._specs = specs
        self._asked: list[str] = []
        self.reads: list[str] = []

    async def execute(self, _: str, arguments: tuple[list[str]], **__: Any) -> Table:
        (self._asked,) = arguments
        self.reads += self._asked
        return self

    async def fetchall(self) -> list[tuple[str, str]]:
        return [(spec_id, to_json(self._specs[spec_id])) for spec_id in self._asked]


def test_a_member_has_its_index_and_what_is_added_up() -> None:
    """Nothing else, however large the submission is."""
    spec = JobSpec("sweep", environment={"A": "x" * 10_000}, gpu_count=4, cpu_cores=1.5)
    document = own_document(spec, SharedMember(UIDS[0], Member(7)))
    assert json.loads(document) == {"index": 7, "gpu_count": 4, "cpu_cores": 1.5}
    assert own_document(JobSpec("gang"), SharedMember(UIDS[0], Member(rank=1))) == "{}"


async def test_documents_are_read_once() -> None:
    """Ten thousand members cost one reading and one decoding."""
    spec = JobSpec("sweep", array="1-9")
    table = Table({UIDS[0]: spec})
    specs = SharedSpecs()
    first = await specs.of(cast("Connection", table), [UIDS[0]] * 3)
    again = await specs.of(cast("Connection", table), [UIDS[0]])
    assert first[UIDS[0]] == spec
    assert again[UIDS[0]] is first[UIDS[0]]
    assert table.reads == [UIDS[0]]
    assert await specs.of(cast("Connection", table), []) == {}


async def test_what_is_kept_is_bounded() -> None:
    """The document that was not used for longest goes first; all that were asked for are there."""
    table = Table({uid: JobSpec("sweep", environment={"A": "x" * 1000}) for uid in UIDS})
    size = len(to_json(JobSpec("sweep", environment={"A": "x" * 1000})))
    specs, connection = SharedSpecs(bytes_max=3 * size), cast("Connection", table)
    assert len(await specs.of(connection, UIDS)) == 9
    await specs.of(connection, [UIDS[6]])
    await specs.of(connection, [UIDS[0]])
    table.reads.clear()
    await specs.of(connection, [UIDS[6], UIDS[8], UIDS[0]])
    assert table.reads == []
    await specs.of(connection, [UIDS[7]])
    assert table.reads == [UIDS[7]]
