"""The audit log: what every AuditLog does."""

from __future__ import annotations

from dataclasses import replace

from core.audit_log import Actor, AuditAction, AuditEntry, faults_in
from core.audit_store import AuditFilter, AuditLog
from core.ports import Store
from tests.db.builders import Maker, at, submitted

ADA = Actor("key:a", "ada", "10.0.0.1", "r1")
ENTRY = AuditEntry(
    at(1), ADA, AuditAction.SUBMIT, "job/a", "red", detail={"on_behalf_of": "bob", "ä": "語"}
)


class AuditLogs:
    async def test_a_row_comes_with_its_change(
        self, store: Store, audit_log: AuditLog, maker: Maker
    ) -> None:
        """Both or none: a batch that is refused leaves no row."""
        job = maker.job("j")
        await store.commit([(submitted(job), ENTRY)], None)
        again = await store.commit([(submitted(maker.job("j")), ENTRY)], None)
        assert again.refusals
        (row,) = await audit_log.rows(AuditFilter(), 10, None)
        assert row.entry == ENTRY
        assert row.link is None

    async def test_rows_are_linked_once(self, store: Store, audit_log: AuditLog) -> None:
        """In batches, in order, into one chain without a fault."""
        entries = [replace(ENTRY, target=f"job/{n}") for n in range(5)]
        await store.commit([(entry,) for entry in entries], None)
        assert [await audit_log.link(3), await audit_log.link(3), await audit_log.link(3)] == [
            3,
            2,
            0,
        ]
        chain = await audit_log.chain(0, 10)
        assert [row.entry.target for row in chain] == [entry.target for entry in entries]
        assert not list(faults_in(chain))
        assert await audit_log.head() == chain[-1].link
        assert not await audit_log.unlinked(10)
        await store.commit([(ENTRY,)], None)
        assert len(await audit_log.unlinked(10)) == 1

    async def test_pages_newest_first(self, store: Store, audit_log: AuditLog) -> None:
        """By who, what and whose."""
        other = replace(
            ENTRY, actor=replace(ADA, principal="key:b"), action=AuditAction.STOP, tenant_id="blue"
        )
        await store.commit([(ENTRY,), (other,), (ENTRY,)], None)
        first = await audit_log.rows(AuditFilter(), 2, None)
        rest = await audit_log.rows(AuditFilter(), 2, first[-1].seq)
        seqs = [row.seq for row in (*first, *rest)]
        assert seqs == sorted(seqs, reverse=True)
        assert len(seqs) == 3
        for where in (AuditFilter(principal="key:b"), AuditFilter(action="job.stop")):
            assert [row.entry for row in await audit_log.rows(where, 9, None)] == [other]
