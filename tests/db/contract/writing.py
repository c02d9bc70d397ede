"""Submissions, guards, leadership and the outbox."""

from __future__ import annotations

import asyncio

import pytest

from core.changes import (
    AtomicBatch,
    JobMove,
    PendingReason,
    Send,
    VmHeartbeat,
)
from core.errors import Ambiguous, NotFound, TermPassed
from core.job import JobEvent, JobKey, JobStatus, Lease, Offer
from core.job_steps import EventFacts, advance, entry_for, offered
from core.messages import OutMessage
from core.ports import Store
from core.reads import Reads
from tests.db.builders import (
    RULES,
    Maker,
    at,
    put,
    put_ready_vm,
    ready,
    step,
    submitted,
)
from tests.db.contract.words import ExpireLeader, note, send

E = JobEvent


class Submissions:
    async def test_a_job_comes_back_as_it_went_in(self, store: Store, maker: Maker) -> None:
        """Every field of a job survives storage."""
        job = maker.job(
            "full",
            user_id="ann",
            tenant_id="lab",
            environment={"A": "ü"},
            labels={"team": "x"},
            regions=("us-central1",),
            gpu_type="l4",
            workflow_args={"n": [1, 2.5, None, {"deep": True}]},
        )
        await put(store, submitted(job))
        assert await store.find_job("full", "ann") == job
        assert await store.content_hash(job.key) == (job.uid, submitted(job).content_hash)

    async def test_a_start_message_that_is_out_is_known(self, store: Store, maker: Maker) -> None:
        """With the VM it was sent for; it is over when the job is claimed."""
        job = maker.job("out")
        await put(store, submitted(job))
        admitted = step(job, E.ADMITTED, at(1))
        out = offered(admitted.after, Offer("l-1", maker.vm().uid, at(2)))
        await put(store, admitted)
        await put(store, JobMove(admitted.after, out, ()))
        assert tuple((await store.snapshot(1)).jobs) == (out,)
        vm = await put_ready_vm(store, maker)
        lease = Lease("l-1", vm.name, vm.uid, vm.region, "z", (0,))
        claimed = step(out, E.FOUND_BY_V1, at(3), lease=lease)
        await put(store, claimed)
        (found,) = (await store.snapshot(1)).jobs
        assert (found.offer, found.lease) == (None, lease)

    async def test_rerouted_job_waits_in_the_other_cluster(
        self, store: Store, maker: Maker
    ) -> None:
        """The cluster of a job changes with the step that says so, and with no other; whether it
        welcomes spot VMs is kept, also when it does not."""
        job = maker.job("moved", spot=False)
        await put(store, submitted(job))
        after = advance(
            job, E.REROUTED, at(5), RULES, reason="no time", facts=EventFacts(cluster="1xt4")
        )
        await put(store, JobMove(job, after, (entry_for(job, after, E.REROUTED, left="1xl4"),)))
        assert await store.find_job("moved", None) == after
        assert [seen.cluster for seen in (await store.snapshot(10)).jobs] == ["1xt4"]

    async def test_unknown_jobs(self, store: Store) -> None:
        """What was never submitted is not found."""
        with pytest.raises(NotFound):
            await store.find_job("none", None)
        assert await store.content_hash(JobKey("default", "ann", "none")) is None

    async def test_repeat_is_refused(self, store: Store, maker: Maker) -> None:
        """A second submission under the same user and id is refused as `exists`."""
        await put(store, submitted(maker.job("same")))
        again = await store.commit([(submitted(maker.job("same")),)], None)
        assert again.applied == (False,)
        assert again.refusals[0].words == "exists"

    async def test_repeat_in_one_call_is_refused(self, store: Store, maker: Maker) -> None:
        """Of two submissions in one call under the same id the first one counts."""
        first, second = maker.job("same"), maker.job("same")
        committed = await store.commit([(submitted(first),), (submitted(second),)], None)
        assert committed.applied == (True, False)
        assert (await store.find_job("same", None)).uid == first.uid

    async def test_same_id_of_two_users(self, store: Store, maker: Maker) -> None:
        """Two users may use the same id; then the user must be named."""
        ann, bob = maker.job("same", user_id="ann"), maker.job("same", user_id="bob")
        await put(store, submitted(ann), submitted(bob))
        assert await store.find_job("same", "bob") == bob
        with pytest.raises(Ambiguous):
            await store.find_job("same", None)

    async def test_race_of_submissions(self, store: Store, maker: Maker) -> None:
        """Of many concurrent submissions under one id exactly one is accepted."""
        jobs = [maker.job("same") for _ in range(12)]
        results = await asyncio.gather(*(store.commit([(submitted(j),)], None) for j in jobs))
        assert sum(result.applied[0] for result in results) == 1
        assert {r.refusals[0].words for r in results if not r.applied[0]} == {"exists"}

    async def test_race_of_batches(self, store: Store, maker: Maker) -> None:
        """Batches that bring the same ids in opposite orders do not block each other."""
        names = [f"j{n}" for n in range(20)]
        batches = [
            [(submitted(maker.job(name)),) for name in (names if turn % 2 else reversed(names))]
            for turn in range(6)
        ]
        results = await asyncio.gather(*(store.commit(batch, None) for batch in batches))
        assert sum(sum(result.applied) for result in results) == len(names)

    async def test_unstorable_spec_harms_nobody_else(self, store: Store, maker: Maker) -> None:
        """A spec with a NUL is refused, and the submission beside it is accepted."""
        bad, good = maker.job("bad", workflow_args={"x": ["a\0b"]}), maker.job("good")
        committed = await store.commit([(submitted(bad),), (submitted(good),)], None)
        assert committed.applied == (False, True)
        assert "NUL" in committed.refusals[0].words

    async def test_strange_words_are_kept(self, store: Store, reads: Reads, maker: Maker) -> None:
        """What a worker says may contain NUL or half a character; the note is kept readable."""
        job = maker.job()
        await put(store, submitted(job))
        await put(store, note(job.uid, "broken \0 pipe \ud800"))
        rows = await reads.events(job.uid, 10, 0)
        assert rows[-1].entry.reason.startswith("broken")


class Guards:
    async def test_stale_version_is_refused(self, store: Store, maker: Maker) -> None:
        """A move over an older version changes nothing and is named."""
        job = maker.job("j")
        await put(store, submitted(job))
        await put(store, step(job, E.ADMITTED))
        committed = await store.commit([(step(job, E.STOP_ASKED),)], None)
        assert committed.applied == (False,)
        assert committed.refusals[0].words == "job j is at version 2, not 1"
        assert (await store.find_job("j", None)).status is JobStatus.PROVISIONING

    async def test_move_of_nothing_is_refused(self, store: Store, maker: Maker) -> None:
        """A job or VM that is not stored cannot move."""
        moves: list[AtomicBatch] = [(step(maker.job(), E.ADMITTED),), (ready(maker.vm()),)]
        committed = await store.commit(moves, None)
        assert committed.applied == (False, False)

    async def test_unit_is_all_or_nothing(self, store: Store, maker: Maker) -> None:
        """One refused change refuses its whole atomic batch, and only that one."""
        job, other, gone = maker.job("j"), maker.job("k"), maker.job("l")
        await put(store, submitted(job), submitted(other))
        batch: AtomicBatch = (step(job, E.ADMITTED), send(b"no"), step(gone, E.ADMITTED))
        committed = await store.commit([batch, (step(other, E.ADMITTED), send(b"yes"))], None)
        assert committed.applied == (False, True)
        assert await store.find_job("j", None) == job
        assert [row.message.body for row in await store.outbox(10)] == [b"yes"]

    async def test_later_units_see_earlier_ones(self, store: Store, maker: Maker) -> None:
        """In one call a chain of moves of one job is accepted, a fork is refused."""
        job = maker.job("j")
        admitted = step(job, E.ADMITTED)
        withdrawn = step(admitted.after, E.WITHDRAWN)
        fork = step(admitted.after, E.STOP_ASKED)
        batches: list[AtomicBatch] = [(submitted(job),), (admitted,), (withdrawn,), (fork,)]
        committed = await store.commit(batches, None)
        assert committed.applied == (True, True, True, False)
        assert await store.find_job("j", None) == withdrawn.after

    async def test_refused_unit_leaves_no_trace_for_later_ones(
        self, store: Store, maker: Maker
    ) -> None:
        """What a refused atomic batch would have done does not count for the ones after it."""
        job, ghost = maker.job("j"), maker.job("ghost")
        await put(store, submitted(job))
        refused = (step(job, E.ADMITTED), step(ghost, E.ADMITTED))
        committed = await store.commit([refused, (step(job, E.STOP_ASKED),)], None)
        assert committed.applied == (False, True)
        assert (await store.find_job("j", None)).status is JobStatus.CANCELLED

    async def test_race_of_moves(self, store: Store, maker: Maker) -> None:
        """Of many concurrent moves over one version exactly one is accepted."""
        job = maker.job("j")
        await put(store, submitted(job))
        events = [E.ADMITTED, E.STOP_ASKED] * 6
        results = await asyncio.gather(*(store.commit([(step(job, e),)], None) for e in events))
        assert sum(result.applied[0] for result in results) == 1

    async def test_commits_never_block_each_other(self, store: Store, maker: Maker) -> None:
        """Commits that name the same rows in other orders all come through."""
        jobs = [maker.job() for _ in range(10)]
        vms = [await put_ready_vm(store, maker) for _ in range(10)]
        await put(store, *(submitted(job) for job in jobs))

        def batches(turn: int) -> list[AtomicBatch]:
            made: list[AtomicBatch] = [
                (
                    note(j.uid, "n"),
                    VmHeartbeat(v.uid, at(turn)),
                    PendingReason(j.uid, f"why {turn}"),
                )
                for j, v in zip(jobs, vms, strict=True)
            ]
            return made if turn % 2 else made[::-1]

        results = await asyncio.gather(*(store.commit(batches(turn), None) for turn in range(12)))
        assert all(result.all_applied for result in results)

    async def test_nothing_to_write(self, store: Store) -> None:
        """An empty call is accepted."""
        assert (await store.commit([], None)).applied == ()

    async def test_step_on_top_of_a_refused_one(self, store: Store, maker: Maker) -> None:
        """A step that builds on a refused one is refused with it, though the number of its
        version is by now the stored one: somebody else's step has made that."""
        job = maker.job("raced")
        await put(store, submitted(job))
        admitted = step(job, E.ADMITTED)
        withdrawn = step(admitted.after, E.WITHDRAWN)
        stopped = step(job, E.STOP_ASKED)
        await put(store, stopped)
        assert stopped.after.version == withdrawn.before.version
        committed = await store.commit([(admitted,), (withdrawn,)], None)
        assert committed.applied == (False, False)
        assert await store.find_job("raced", None) == stopped.after


class Leading:
    async def test_first_comer_leads(self, store: Store) -> None:
        """Nobody led before: the first term is 1 or more, and a second one does not lead."""
        first = await store.lead("a", 60)
        second = await store.lead("b", 60)
        assert (first.leading, first.holder) == (True, "a")
        assert (second.leading, second.holder, second.term) == (False, "a", first.term)
        assert second.expires_at == first.expires_at

    async def test_renewal_keeps_the_term(self, store: Store) -> None:
        """Renewing moves the end, not the term."""
        first = await store.lead("a", 60)
        again = await store.lead("a", 120)
        assert (again.leading, again.term) == (True, first.term)
        assert again.expires_at > first.expires_at

    async def test_takeover_grows_the_term(self, store: Store, expire_leader: ExpireLeader) -> None:
        """After the lease has run out another one leads, in a later term."""
        first = await store.lead("a", 60)
        await expire_leader()
        second = await store.lead("b", 60)
        assert second.leading
        assert second.term > first.term
        assert not (await store.lead("a", 60)).leading

    async def test_resigning_frees_at_once(self, store: Store) -> None:
        """After a resignation a successor need not wait."""
        first = await store.lead("a", 60)
        await store.resign("a", first.term)
        second = await store.lead("b", 60)
        assert second.leading
        assert second.term > first.term

    async def test_only_the_holder_resigns(self, store: Store) -> None:
        """A resignation by another holder or for another term changes nothing."""
        first = await store.lead("a", 60)
        await store.resign("b", first.term)
        await store.resign("a", first.term + 1)
        assert not (await store.lead("b", 60)).leading

    async def test_race_for_the_lead(self, store: Store) -> None:
        """Of many who ask at once exactly one leads."""
        answers = await asyncio.gather(*(store.lead(f"r{n}", 60) for n in range(10)))
        assert sum(answer.leading for answer in answers) == 1

    async def test_passed_term_writes_nothing(
        self, store: Store, maker: Maker, expire_leader: ExpireLeader
    ) -> None:
        """A leader whose term has passed cannot write, one that leads can."""
        old = await store.lead("a", 60)
        await expire_leader()
        new = await store.lead("b", 60)
        job = maker.job("j")
        with pytest.raises(TermPassed):
            await store.commit([(submitted(job),)], old.term)
        assert await store.content_hash(JobKey("default", "0", "j")) is None
        assert (await store.commit([(submitted(job),)], new.term)).all_applied

    async def test_term_without_leader(self, store: Store, maker: Maker) -> None:
        """Without a leader, before the first or after a resignation, no term is good."""
        with pytest.raises(TermPassed):
            await store.commit([(submitted(maker.job()),)], 1)
        lead = await store.lead("a", 60)
        await store.resign("a", lead.term)
        with pytest.raises(TermPassed):
            await store.commit([(submitted(maker.job()),)], lead.term)


class Outbox:
    async def test_order_and_confirmation(self, store: Store) -> None:
        """Messages come in the order of their commits until they are confirmed."""
        await put(store, send(b"1"), send(b"2"))
        await put(store, send(b"3"))
        rows = await store.outbox(10)
        assert [row.message.body for row in rows] == [b"1", b"2", b"3"]
        assert rows[0].message == send(b"1").message
        assert [row.message.body for row in await store.outbox(2)] == [b"1", b"2"]
        await store.published([rows[0].outbox_id, rows[2].outbox_id])
        await store.published([rows[0].outbox_id])
        assert [row.message.body for row in await store.outbox(10)] == [b"2"]

    async def test_topics_can_be_left_out_or_asked_for(self, store: Store) -> None:
        """What the bus refuses does not stand before the rest."""
        other = Send(OutMessage("lost", b"2"))
        await put(store, send(b"1"), other, send(b"3"))
        topics = {row.message.topic for row in await store.outbox(10)}
        (mine,) = topics - {"lost"}
        for asked, besides, bodies in (
            ([], True, [b"1", b"2", b"3"]),
            (["lost"], True, [b"1", b"3"]),
            (["lost"], False, [b"2"]),
            (["lost", mine], False, [b"1", b"2", b"3"]),
            (["lost", mine], True, []),
        ):
            rows = await store.outbox(10, asked, besides=besides)
            assert [row.message.body for row in rows] == bodies

    async def test_messages_can_be_left_out(self, store: Store) -> None:
        """The limit counts the others alone."""
        await put(store, send(b"1"), send(b"2"), send(b"3"), send(b"4"))
        first, _, third, _ = await store.outbox(10)
        held = [first.outbox_id, third.outbox_id]
        for limit, bodies in ((10, [b"2", b"4"]), (1, [b"2"])):
            rows = await store.outbox(limit, without=held)
            assert [row.message.body for row in rows] == bodies

    async def test_nothing_appears_before_what_was_seen(self, store: Store) -> None:
        """While many commit at once, a message once visible is never preceded by a new one."""
        seen: list[int] = []

        async def watch() -> None:
            while len(seen) < 40:
                ids = [row.outbox_id for row in await store.outbox(100)]
                assert ids[: len(seen)] == seen
                seen[:] = ids

        writers = (put(store, send(bytes([n]))) for n in range(40))
        await asyncio.wait_for(asyncio.gather(watch(), *writers), 30)
