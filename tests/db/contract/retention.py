"""What is over for long enough is taken away; what is not over never is."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from core.changes import (
    ClearAlert,
    CloudRequest,
    DeadLetter,
    NewRequest,
    NewVm,
    RaiseAlert,
    SettleRequest,
    VmMove,
)
from core.dead_letter_bounds import BYTES_MAX
from core.job import Job, JobEvent
from core.ports import Store
from core.reads import Reads
from core.retention import RetentionRules
from core.vm import Vm, VmEvent, advance_vm
from tests.db.builders import Maker, leased, put, put_ready_vm, ready, step, submitted
from tests.db.contract.words import note, send

E = JobEvent
RULES = RetentionRules()


async def days_ago(store: Store, days: float) -> datetime:
    """On the store's own clock."""
    return (await store.snapshot(0)).now - timedelta(days=days)


def taken(counts: object) -> dict[str, int]:
    """Only the tables that lost something."""
    assert isinstance(counts, dict)
    return {table: count for table, count in counts.items() if count}


class Pruning:
    async def test_nothing_to_prune(self, store: Store) -> None:
        """An empty house stays as it is; every table is named."""
        counts = await store.prune(RULES, 10)
        assert set(counts) == {
            "outbox",
            "dead_letters",
            "cloud_requests",
            "experience",
            "troubles",
            "vms",
            "alerts",
            "job_events",
            "attempts",
            "job_waits",
        }
        assert taken(counts) == {}

    async def test_history_of_ended_jobs(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Timeline and attempts of a job that ended long ago go; the job stays, with its cost, and
        its id stays taken. One that ended lately keeps everything, one that runs too."""
        old = await self._lived(store, maker, "old", await days_ago(store, 91))
        late = await self._lived(store, maker, "late", await days_ago(store, 89))
        waits = maker.job("waits", now=await days_ago(store, 300), queue_timeout_s=10.0**9)
        await put(store, submitted(waits))
        assert taken(await store.prune(RULES, 100)) == {"job_events": 5, "attempts": 1}
        assert await store.find_job("old", None) == old
        assert list(await reads.events(old.uid, 10, 0)) == []
        assert list(await reads.attempts(old.uid)) == []
        assert (await reads.job("old", None)).cost_usd == pytest.approx(2.0)
        assert (await reads.job("late", None)).cost_usd == pytest.approx(2.0)
        assert len(await reads.events(late.uid, 10, 0)) == 5
        assert len(await reads.events(waits.uid, 10, 0)) == 1
        again = await store.commit([(submitted(maker.job("old")),)], None)
        assert again.refusals[0].words == "exists"
        assert taken(await store.prune(RULES, 100)) == {}

    async def test_bites_are_bounded(self, store: Store, reads: Reads, maker: Maker) -> None:
        """No table loses more than a batch at a time, oldest first, and in the end all of it."""
        first = await self._lived(store, maker, "first", await days_ago(store, 200))
        second = await self._lived(store, maker, "second", await days_ago(store, 100))
        assert taken(await store.prune(RULES, 4)) == {"job_events": 4, "attempts": 2}
        assert [row.seq for row in await reads.events(first.uid, 10, 0)] == [5]
        assert len(await reads.events(second.uid, 10, 0)) == 5
        counts = [taken(await store.prune(RULES, 4)) for _ in range(3)]
        assert counts == [{"job_events": 4}, {"job_events": 2}, {}]

    async def test_numbers_go_on(self, store: Store, reads: Reads, maker: Maker) -> None:
        """News of a job without a timeline gets the next number, not the first."""
        job = await self._lived(store, maker, "j", await days_ago(store, 91))
        await store.prune(RULES, 100)
        await put(store, note(job.uid, "late news"))
        assert [row.seq for row in await reads.events(job.uid, 10, 0)] == [6]

    async def test_vms(self, store: Store, reads: Reads, maker: Maker) -> None:
        """A VM goes when it is gone for long and its jobs have heard; never while it lives."""
        ancient = await days_ago(store, 300)
        old, late = await days_ago(store, 31), await days_ago(store, 29)
        await self._gone(store, maker, "old", old)
        await self._gone(store, maker, "late", late)
        held = await put_ready_vm(store, maker)
        mourned = leased(held, maker.lease(held)).after
        gone = advance_vm(mourned, VmEvent.NOT_LISTED, old, "observed gone")
        await put(store, VmMove(held, mourned), VmMove(mourned, gone))
        await put(store, NewVm(replace(maker.vm("living"), requested_at=ancient), 9))
        assert (await store.settle_costs(10)).vms == 2
        assert taken(await store.prune(RULES, 10)) == {"vms": 1}
        rows = (await reads.vms(None, None, True, 10, None)).rows
        assert {row.vm.name for row in rows} == {"late", held.name, "living"}
        assert gone in (await store.snapshot(0)).vms
        heard = replace(gone, version=gone.version + 1, leases=())
        await put(store, VmMove(gone, heard))
        await store.settle_costs(10)
        assert taken(await store.prune(RULES, 10)) == {"vms": 1}

    async def test_knowledge(self, store: Store, reads: Reads) -> None:
        """Settled requests, cleared alerts and dead letters go at their age; open ones stay."""
        old = await days_ago(store, 31)
        for name in ("settled", "open"):
            request = CloudRequest(name, "create", "1xl4", "r", ("a",), "demand", old)
            await put(store, NewRequest(request), RaiseAlert("k", name, "error", "m", old))
        await put(store, SettleRequest("settled", "accepted", old), ClearAlert("k", "settled", old))
        await put(store, DeadLetter("old", "submit", b"x", {}, "not JSON", old))
        now = await days_ago(store, 0)
        await put(store, DeadLetter("new", "submit", b"x", {}, "not JSON", now))
        counts = taken(await store.prune(RULES, 10))
        assert counts == {"dead_letters": 1, "cloud_requests": 1, "alerts": 1}
        snapshot = await store.snapshot(0)
        assert [request.request_id for request in snapshot.requests] == ["open"]
        assert set(snapshot.open_alerts) == {("k", "open")}
        assert len(await reads.alerts(False, 10)) == 1
        page = await reads.dead_letters(None, 10, None)
        assert [row.dead_letter.message_id for row in page.rows] == ["new"]

    async def test_dead_letters_of_a_source_are_bounded(self, store: Store, reads: Reads) -> None:
        """The newest are kept as they come, in one batch or one by one; other sources lose none."""
        now = await days_ago(store, 0)

        def letter(number: int, source: str = "heartbeats") -> DeadLetter:
            body = b"x" * (BYTES_MAX * 2 // 5)
            at = now + timedelta(seconds=number)
            return DeadLetter(f"{source}{number}", source, body, {}, "garbage", at)

        async def kept() -> list[str]:
            page = await reads.dead_letters(None, 10, None)
            return [row.dead_letter.message_id for row in page.rows]

        await put(store, letter(0, "submit"))
        for number in (2, 1, 4):
            await put(store, letter(number))
        assert await kept() == ["heartbeats4", "heartbeats2", "submit0"]
        await put(store, *(letter(number) for number in range(5, 9)))
        assert await kept() == ["heartbeats8", "heartbeats7", "submit0"]
        late = letter(3)
        await put(store, late)
        assert await kept() == ["heartbeats8", "heartbeats7", "submit0"]

    async def test_outbox_is_not_pruned_early(self, store: Store) -> None:
        """Neither what the bus has not confirmed, nor what it has confirmed just now."""
        await put(store, send(b"1"), send(b"2"))
        rows = await store.outbox(10)
        await store.published([rows[0].outbox_id])
        assert taken(await store.prune(RULES, 10)) == {}
        assert [row.message.body for row in await store.outbox(10)] == [b"2"]

    async def _lived(self, store: Store, maker: Maker, name: str, ended: datetime) -> Job:
        """A job with five rows of history that ran an hour at two dollars, on a VM that lives on
        and is settled."""
        placed_at = ended - timedelta(hours=1)
        job, up = maker.job(name, now=ended - timedelta(hours=2)), ready(maker.vm(), placed_at)
        vm = up.after
        await put(store, NewVm(up.before, 99), up)
        admitted = step(job, E.ADMITTED, placed_at)
        placed = step(admitted.after, E.PLACED, placed_at, lease=maker.lease(vm))
        started = step(placed.after, E.STARTED, placed_at)
        over = step(started.after, E.EXITED_OK, ended)
        for change in (submitted(job), admitted, placed, started, over):
            await put(store, change)
        await store.settle_costs(10)
        return over.after

    async def _gone(self, store: Store, maker: Maker, name: str, when: datetime) -> Vm:
        vm = maker.vm(name)
        became = ready(vm)
        gone = VmMove(
            became.after, advance_vm(became.after, VmEvent.NOT_LISTED, when, "observed gone")
        )
        await put(store, NewVm(vm, 9), became, gone)
        return gone.after
