"""Groups, and jobs that wait for others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.changes import JobMove, NewJob
from core.errors import Ambiguous, NotFound
from core.groups import After, GroupKey, Wait
from core.job import Job, JobEvent, JobStatus, Membership
from core.job_steps import EventFacts, advance, entry_for, new_job
from core.ports import Store
from core.reads import JobFilter, Reads
from tests.db.builders import RULES, Maker, at, put, step, submitted

E, S = JobEvent, JobStatus


def behind(job: Job, hold: str | None, *waits: Wait) -> NewJob:
    """The submission of a job behind a hold: its own, or that of another one."""
    # No deadline passes meanwhile, whatever the store's own clock says.
    waiting = replace(job, blocked=hold or job.uid, deadline_at=at(1e9))
    return replace(submitted(waiting), waits=waits)


def needs(job: Job, *, good_only: bool = True) -> Wait:
    return Wait(job.uid, None, After(job.spec.job_id, good_only))


def needs_group(group: str, *, good_only: bool = True) -> Wait:
    return Wait(None, GroupKey("default", "0", group), After(group, good_only))


async def ends(store: Store, job: Job, event: JobEvent = E.STOP_ASKED) -> None:
    await put(store, step(job, event, at(1)))


async def succeeds(store: Store, job: Job) -> None:
    """A good end, without the road to it: this is about what follows."""
    after = replace(advance(job, E.STOP_ASKED, at(1), RULES), status=S.SUCCEEDED)
    await put(store, JobMove(job, after, (entry_for(job, after, E.EXITED_OK),)))


async def freed(store: Store) -> dict[str, str | None]:
    """Job id → the verdict of its hold, as the loop sees it."""
    snapshot = await store.snapshot(100)
    return {
        job.spec.job_id: snapshot.verdicts[job.blocked]
        for job in snapshot.jobs
        if job.blocked is not None
    }


class Holding:
    async def test_a_blocked_job_is_in_no_head(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """A job that waits for others is not seen by the loop, and has no place in the queue."""
        first, second = maker.job("first"), maker.job("second")
        await put(store, submitted(first))
        await put(store, behind(second, None, needs(first)))
        assert [job.spec.job_id for job in (await store.snapshot(100)).jobs] == ["first"]
        assert (await reads.job("second", None)).position is None
        assert (await reads.job("first", None)).position == 1
        assert (await store.find_job("second", None)).blocked == second.uid

    async def test_a_good_end_releases(self, store: Store, maker: Maker) -> None:
        """When all that it waits for has ended well, the loop is told, and after the release
        nothing is left to tell."""
        one, two, last = maker.job("one"), maker.job("two"), maker.job("last")
        await put(store, submitted(one), submitted(two))
        await put(store, behind(last, None, needs(one), needs(two)))
        await succeeds(store, one)
        assert await freed(store) == {}
        await succeeds(store, two)
        assert await freed(store) == {"last": None}
        await put(store, step(await store.find_job("last", None), E.RELEASED, at(2)))
        snapshot = await store.snapshot(100)
        assert [(j.spec.job_id, j.blocked) for j in snapshot.jobs] == [("last", None)]
        assert snapshot.verdicts == {}

    async def test_one_bad_end_decides(self, store: Store, maker: Maker) -> None:
        """A bad end is told at once, with its name; to whom any end will do, it is none."""
        one, two = maker.job("one"), maker.job("two")
        picky, easy = maker.job("picky"), maker.job("easy")
        await put(store, submitted(one), submitted(two))
        await put(store, behind(picky, None, needs(one), needs(two)))
        await put(store, behind(easy, None, needs(one, good_only=False)))
        await ends(store, one)
        bad = "it waited for job one, and that ended CANCELLED"
        assert await freed(store) == {"picky": bad, "easy": None}

    async def test_what_ended_before_counts(self, store: Store, maker: Maker) -> None:
        """A job may be submitted behind one that has ended already."""
        first, second = maker.job("first"), maker.job("second")
        await put(store, submitted(first))
        await succeeds(store, first)
        await put(store, behind(second, None, needs(first)))
        assert await freed(store) == {"second": None}

    async def test_a_group_ends_with_its_last_job(self, store: Store, maker: Maker) -> None:
        """A job that waits for a group waits for all of it, and hears of the worst end."""
        one, two = maker.job("g-1", group="g"), maker.job("g-2", group="g")
        last = maker.job("last")
        await put(store, submitted(one), submitted(two))
        await put(store, behind(last, None, needs_group("g")))
        await succeeds(store, one)
        assert await freed(store) == {}
        await ends(store, two)
        bad = "it waited for group g, and a job of it ended CANCELLED"
        assert await freed(store) == {"last": bad}

    async def test_many_jobs_stand_behind_one_hold(self, store: Store, maker: Maker) -> None:
        """An array waits once for all of its jobs; the hold goes when the last one has left."""
        first, one, two = maker.job("first"), maker.job("a-1"), maker.job("a-2")
        await put(store, submitted(first))
        await put(store, behind(one, None, needs(first)), behind(two, one.uid))
        await succeeds(store, first)
        assert await freed(store) == {"a-1": None, "a-2": None}
        await put(store, step(await store.find_job("a-1", None), E.RELEASED, at(2)))
        assert await freed(store) == {"a-2": None}
        await put(store, step(await store.find_job("a-2", None), E.STOP_ASKED, at(2)))
        assert (await store.snapshot(100)).verdicts == {}


class Groups:
    async def test_a_group_is_counted_and_listed(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """The jobs of a group are found by its name, the active ones page by page."""
        jobs = [maker.job(f"g-{n}", group="g") for n in range(3)]
        await put(store, *map(submitted, [*jobs, maker.job("alone")]))
        await ends(store, jobs[0])
        row = await reads.group("g", None)
        assert (row.key.user_id, dict(row.counts)) == ("0", {S.CANCELLED: 1, S.QUEUED: 2})
        page = await reads.jobs(JobFilter({"group": "g"}), 10, None)
        assert {r.job.spec.job_id for r in page.rows} == {"g-0", "g-1", "g-2"}
        assert {j.spec.job_id for j in await store.open_jobs(row.key, 10)} == {"g-1", "g-2"}
        assert len(await store.open_jobs(row.key, 1)) == 1

    async def test_a_group_belongs_to_its_user(self, store: Store, maker: Maker) -> None:
        """Two users may have groups of one name: then one must say whose."""
        mine, yours = maker.job("a", group="g"), maker.job("b", group="g", user_id="you")
        await put(store, submitted(mine), submitted(yours))
        assert await store.find_group("g", "you") == ("default", "you", "g")
        with pytest.raises(Ambiguous):
            await store.find_group("g", None)
        with pytest.raises(NotFound):
            await store.find_group("none", None)


class Gangs:
    async def test_a_gang_is_seen_whole(self, store: Store, reads: Reads, maker: Maker) -> None:
        """Wherever its members stand, also ended ones, the loop sees all of them as
        long as it sees one; people see the first."""
        jobs = [maker.job(name, replicas=3) for name in ("g", "g.1", "g.2")]
        members = [
            replace(job, gang=Membership(jobs[0].uid, rank, 3)) for rank, job in enumerate(jobs)
        ]
        first = maker.job("first", now=at(-100))
        await put(store, *map(submitted, [*members, first]))
        await ends(store, members[2])
        seen = {job.spec.job_id: job for job in (await store.snapshot(100)).jobs}
        assert seen.keys() == {"first", "g", "g.1", "g.2"}
        assert seen["g.2"].status is S.CANCELLED
        assert seen["g.1"].gang == Membership(jobs[0].uid, 1, 3)
        found = await store.members(jobs[0].uid)
        assert [job.spec.job_id for job in found] == ["g", "g.1", "g.2"]
        page = await reads.jobs(JobFilter(), 10, None)
        assert ({row.job.spec.job_id for row in page.rows}, page.total) == ({"first", "g"}, 2)
        assert {row.job.spec.job_id: row.members_running for row in page.rows} == {
            "first": None,
            "g": 0,
        }

    async def test_a_spare_member_is_seen_with_its_job_alone(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """It is no head and has no place in the queue; with its job it is seen, and can be
        admitted and parked again."""
        first, other = maker.job("e"), maker.job("e.1")
        spec = replace(first.spec, replicas=2, replicas_min=1)
        first = replace(first, spec=spec, gang=Membership(first.uid, 0, 2))
        own, place = replace(spec, job_id="e.1"), Membership(first.uid, 1, 2)
        spare = new_job(other.uid, own, first.cluster, at(0), gang=place)
        assert spare.parked
        # No deadline passes meanwhile, whatever the store's own clock says.
        first, spare = (replace(job, deadline_at=at(1e9)) for job in (first, spare))
        await put(store, submitted(first), submitted(spare))
        assert (await reads.job("e", "0")).position == 1
        assert (await reads.job("e.1", "0")).position is None
        counted = await reads.summary()
        assert (counted.jobs, counted.oldest_waiting_since) == (
            {(first.cluster, S.QUEUED): 1},
            first.queued_since,
        )
        seen = {job.spec.job_id: job for job in (await store.snapshot(1)).jobs}
        assert seen == {"e": first, "e.1": spare}
        await put(store, step(first, E.STOP_ASKED, at(1)))
        assert not (await store.snapshot(100)).jobs
        admitted = advance(spare, E.ADMITTED, at(2), RULES)
        assert admitted.blocked is None
        await put(store, JobMove(spare, admitted, (entry_for(spare, admitted, E.ADMITTED),)))
        seen = {job.spec.job_id: job for job in (await store.snapshot(1)).jobs}
        assert seen["e.1"] == admitted
        back = advance(admitted, E.WITHDRAWN, at(3), RULES)
        await put(store, JobMove(admitted, back, (entry_for(admitted, back, E.WITHDRAWN),)))
        assert (await store.find_job("e.1", "0")).parked

    async def test_where_a_gang_was_sent_is_kept(self, store: Store, maker: Maker) -> None:
        """A new leader knows the region and how often it was in vain."""
        job = maker.job("g", replicas=2)
        leader = replace(job, gang=Membership(job.uid, 0, 2))
        await put(store, submitted(leader))
        sent = advance(leader, E.ADMITTED, at(1), RULES, facts=EventFacts(gang_region="us-east1"))
        back = advance(sent, E.GANG_TIMEOUT, at(2), RULES)
        for before, after, event in ((leader, sent, E.ADMITTED), (sent, back, E.GANG_TIMEOUT)):
            await put(store, JobMove(before, after, (entry_for(before, after, event),)))
        stored = await store.find_job("g", None)
        assert (stored.gang_region, stored.holds, stored.status) == ("us-east1", 1, S.QUEUED)
