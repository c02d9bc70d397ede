"""What a job met while it waited is kept, folded, as long as its history."""

from __future__ import annotations

from core.job import JobEvent
from core.ports import Store
from core.reads import Reads
from core.retention import RetentionRules
from core.waits import ROWS_MAX, WaitKind, WaitNote, WaitRow
from tests.db.builders import Maker, at, put, step, submitted
from tests.db.contract.retention import days_ago

K = WaitKind


class Waits:
    async def test_waits_are_folded(self, store: Store, reads: Reads, maker: Maker) -> None:
        """One row per kind, region and reason, numbers apart; in one commit or in several."""
        job = maker.job()
        await put(store, submitted(job))

        def note(kind: WaitKind, region: str, reason: str, second: float, n: int = 1) -> WaitNote:
            return WaitNote(job.uid, kind, region, reason, at(second), n)

        await put(
            store,
            note(K.REFUSAL, "us-east1", "stockout 1", 10),
            note(K.REFUSAL, "us-west1", "stockout 1", 11),
            note(K.REFUSAL, "us-east1", "stockout 2", 20),
        )
        await put(store, note(K.REFUSAL, "us-east1", "stockout 3", 15, 4))
        await put(store, note(K.PENDING_REASON, "", "a\x00b", 5))
        await put(store, note(K.PENDING_REASON, "", "a\x00b", 50, 0))
        assert await reads.waits(job.uid) == [
            WaitRow(K.PENDING_REASON, "", "a\N{REPLACEMENT CHARACTER}b", at(5), at(50), 1),
            WaitRow(K.REFUSAL, "us-east1", "stockout 2", at(10), at(20), 6),
            WaitRow(K.REFUSAL, "us-west1", "stockout 1", at(11), at(11), 1),
        ]

    async def test_waits_are_bounded(self, store: Store, reads: Reads, maker: Maker) -> None:
        """What comes beyond the last row is counted in one more; a row that is there goes on."""
        job = maker.job()
        await put(store, submitted(job))
        words = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(ROWS_MAX + 5)]
        for second, reason in enumerate(words):
            await put(store, WaitNote(job.uid, K.REFUSAL, "r", reason, at(second)))
        await put(store, WaitNote(job.uid, K.REFUSAL, "r", words[0], at(99)))
        rows = await reads.waits(job.uid)
        assert len(rows) == ROWS_MAX + 1
        assert rows[0] == WaitRow(K.REFUSAL, "r", words[0], at(0), at(99), 2)
        assert rows[-1] == WaitRow(K.OTHER, "", words[-1], at(ROWS_MAX), at(ROWS_MAX + 4), 5)

    async def test_waits_are_bounded_within_a_commit(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """The bound holds however many new reasons one commit brings: the first ones have rows."""
        job = maker.job()
        await put(store, submitted(job), WaitNote(job.uid, K.REFUSAL, "r", "known", at(0)))
        words = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(ROWS_MAX + 5)]
        notes = [WaitNote(job.uid, K.REFUSAL, "r", word, at(n)) for n, word in enumerate(words)]
        await put(store, *notes, WaitNote(job.uid, K.REFUSAL, "r", "known", at(99)))
        rows = {row.reason: row for row in await reads.waits(job.uid)}
        assert set(rows) == {"known", *words[: ROWS_MAX - 1], words[-1]}
        assert rows["known"] == WaitRow(K.REFUSAL, "r", "known", at(0), at(99), 2)
        assert rows[words[-1]].kind is K.OTHER
        assert rows[words[-1]].count == 6

    async def test_wait_of_nobody_is_dropped(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """And what was committed with it stands."""
        job, stranger = maker.job(), maker.job()
        note = WaitNote(stranger.uid, K.REFUSAL, "r", "no", at(0))
        await put(store, submitted(job), note)
        assert await reads.waits(stranger.uid) == []
        assert (await reads.job(job.spec.job_id, None)).job.uid == job.uid

    async def test_waits_outlive_the_job_and_go_with_its_history(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Yesterday's wait has an answer; last year's is pruned with the events."""
        ended = {}
        for name, days in (("old", 200.0), ("late", 1.0)):
            job, then = maker.job(name), await days_ago(store, days)
            await put(store, submitted(job), WaitNote(job.uid, K.REFUSAL, "r", "no", then))
            await put(store, step(job, JobEvent.STOP_ASKED, then))
            ended[name] = job.uid
        assert len(await reads.waits(ended["old"])) == 1
        for _ in range(3):
            await store.prune(RetentionRules(), 10)
        assert await reads.waits(ended["old"]) == []
        assert len(await reads.waits(ended["late"])) == 1
