"""An owner of the database changes the audit log: the check names what was done."""
# ruff: noqa: S608  # only words of these tests are put into these texts

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from core.audit_anchors import AuditAnchor
from core.audit_log import links_for
from db.audit_log import PostgresAuditLog
from db.store import PostgresStore
from scheduler.operations.audit_anchors import AuditAnchors
from scheduler.operations.audit_check import AuditVerdict, verify_audit_log
from stores.local import LocalStore
from tests.builders import at
from tests.db.contract.audit import ENTRY

pytestmark = pytest.mark.slow
ROWS = 6


class Tampered:
    """A log of six linked rows whose head is anchored, and somebody without triggers."""

    def __init__(self, store: PostgresStore, url: str, directory: Path) -> None:
        self.store, self._url = store, url
        self.log = PostgresAuditLog(store)
        self.anchors = AuditAnchors(LocalStore(directory))

    async def begin(self) -> None:
        entries = [replace(ENTRY, target=f"job/{number}") for number in range(1, ROWS + 1)]
        await self.store.commit([(entry,) for entry in entries], None)
        assert await self.log.link(100) == ROWS
        head = await self.log.head()
        assert head is not None
        await self.anchors.write(AuditAnchor(head, at(0)))

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute("ALTER TABLE audit_log DISABLE TRIGGER ALL")
            for statement in statements:
                connection.execute(statement)
            connection.execute("ALTER TABLE audit_log ENABLE TRIGGER ALL")

    async def verdict(self, *, anchored: bool = False) -> AuditVerdict:
        anchors = await self.anchors.read() if anchored else ()
        return await verify_audit_log(self.log, anchors)

    async def words(self, *, anchored: bool = False) -> list[str]:
        return [fault.words for fault in (await self.verdict(anchored=anchored)).faults]


@pytest.fixture
async def tampered(database_url: str, tmp_path: Path) -> AsyncIterator[Tampered]:
    store = PostgresStore(database_url)
    await store.open()
    made = Tampered(store, database_url, tmp_path)
    await made.begin()
    yield made
    await store.close()


async def test_an_untouched_log_has_no_fault(tampered: Tampered) -> None:
    """Nor beside its anchors."""
    found = await tampered.verdict(anchored=True)
    assert (found.rows, found.faults, found.unlinked, found.anchors) == (ROWS, (), None, 1)


@pytest.mark.parametrize(
    "column",
    [
        *("principal", "user_id", "address", "request_id"),
        *("action", "target", "tenant_id", "outcome"),
    ],
)
async def test_a_changed_word_is_named(tampered: Tampered, column: str) -> None:
    """Whichever it is."""
    value = "job.stop" if column == "action" else "forged"
    tampered.sql(f"UPDATE audit_log SET {column} = '{value}' WHERE number = 3")
    assert await tampered.words() == ["row 3 (link 3) was changed or replaced"]


@pytest.mark.parametrize(
    "change",
    [
        "at = at + interval '1 microsecond'",
        "detail = '{}'",
        "hash = decode(repeat('00', 32), 'hex')",
    ],
)
async def test_a_changed_time_detail_or_hash_is_named(tampered: Tampered, change: str) -> None:
    """A hash that was changed breaks its own link and the one behind it."""
    tampered.sql(f"UPDATE audit_log SET {change} WHERE number = 3")
    assert (await tampered.words())[0] == "row 3 (link 3) was changed or replaced"


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "link 1 is missing before link 2"), (4, "link 4 is missing before link 5")],
)
async def test_a_dropped_row_is_named(tampered: Tampered, number: int, words: str) -> None:
    """Also the first."""
    tampered.sql(f"DELETE FROM audit_log WHERE number = {number}")
    assert await tampered.words() == [words]


async def test_a_dropped_row_whose_gap_is_closed_is_named(tampered: Tampered) -> None:
    """The rows behind it are not what was linked there."""
    tampered.sql(
        "DELETE FROM audit_log WHERE number = 4",
        "UPDATE audit_log SET number = number - 1 WHERE number > 4",
    )
    assert (await tampered.words())[0] == "row 5 (link 4) was changed or replaced"


async def test_swapped_rows_are_named(tampered: Tampered) -> None:
    """Both of them, by their places or by their contents."""
    both = ["row 2 (link 2) was changed or replaced", "row 5 (link 5) was changed or replaced"]
    contents = (
        "UPDATE audit_log AS a SET target = b.target FROM audit_log AS b "
        "WHERE (a.seq, b.seq) IN ((2, 5), (5, 2))"
    )
    tampered.sql(contents)
    assert await tampered.words() == both
    tampered.sql(
        contents,
        "DROP INDEX uq_audit_log_number",
        "UPDATE audit_log AS a SET number = b.number, hash = b.hash FROM audit_log AS b "
        "WHERE (a.seq, b.seq) IN ((2, 5), (5, 2))",
    )
    assert await tampered.words() == [
        "row 5 (link 2) was changed or replaced",
        "row 2 (link 5) was changed or replaced",
    ]


async def test_a_log_that_was_cut_off_is_named_by_its_anchor(tampered: Tampered) -> None:
    """The chain alone cannot tell."""
    tampered.sql(f"DELETE FROM audit_log WHERE number > {ROWS - 2}")
    assert await tampered.words() == []
    (words,) = await tampered.words(anchored=True)
    assert words.startswith("links 5 to 6 are missing at the end: the anchor of 2026-01-01")
    tampered.sql("DELETE FROM audit_log")
    (words,) = await tampered.words(anchored=True)
    assert words.startswith("links 1 to 6 are missing at the end")


async def test_a_chain_that_was_written_anew_is_named_by_its_anchor(tampered: Tampered) -> None:
    """All links are right, and none is the anchored one."""
    tampered.sql(
        "DELETE FROM audit_log WHERE number = 3",
        "UPDATE audit_log SET number = NULL, hash = NULL",
    )
    assert await tampered.log.link(100) == ROWS - 1
    assert await tampered.words() == []
    await tampered.store.commit([(ENTRY,)], None)
    await tampered.log.link(100)
    (words,) = await tampered.words(anchored=True)
    assert words.startswith("link 6 is not the one that was anchored at 2026-01-01")


async def test_rows_that_are_not_linked_yet_are_named(tampered: Tampered) -> None:
    """They are no fault, and not protected."""
    await tampered.store.commit([(ENTRY,)], None)
    found = await tampered.verdict()
    assert not found.faults
    assert found.unlinked is not None
    assert found.unlinked.words == "not linked yet: 7"
    rows = await tampered.log.unlinked(10)
    assert links_for(rows, await tampered.log.head())[0][1].number == ROWS + 1
