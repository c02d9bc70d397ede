"""Tenants: settings, quotas inside the commit, usage; and the heads of fair queues."""

from __future__ import annotations

from dataclasses import replace

from core.changes import Change, Charge, NewVm, PutTenant, Reserve
from core.job import Job, JobEvent, Membership
from core.ports import Store
from core.queueing import HeadsOf, Live, QueueRule
from core.tenants import Consent, MachineShape, Quota, ResourceTotals, Tenant, Usage
from tests.db.builders import Maker, at, leased, put, ready, step, submitted

E = JobEvent
MACHINES = {
    "1xl4": MachineShape("l4", 24.0, 12.0, 48.0),
    "1xh100": MachineShape("h100", 80.0, 26.0, 200.0),
}
WEEK = 7 * 86400.0


def admitted(job: Job) -> tuple[Change, ...]:
    """The atomic batch of an admission."""
    reserve = Reserve(job.spec.tenant_id, job.cluster, ResourceTotals.of(job.spec), MACHINES)
    return (step(job, E.ADMITTED), reserve)


def patient(maker: Maker, job_id: str, second: float = 0, **facts: object) -> Job:
    """No deadline has passed, whatever the store's own clock says."""
    return maker.job(job_id, now=at(second), queue_timeout_s=1e9, **facts)  # type: ignore[arg-type]


async def queued(store: Store, maker: Maker, count: int, **facts: object) -> list[Job]:
    jobs = [patient(maker, f"{facts}-{n}"[-40:], n, **facts) for n in range(count)]
    await put(store, *(submitted(job) for job in jobs))
    return jobs


async def heads(store: Store, *wanted: HeadsOf, limit: int = 100) -> list[str]:
    snapshot = await store.snapshot(limit, lambda _: wanted)
    return [job.spec.job_id for job in snapshot.jobs]


class Tenants:
    async def test_a_submission_makes_its_tenant(self, store: Store, maker: Maker) -> None:
        """Nobody needs to be set up: a new name is a tenant with the defaults."""
        await queued(store, maker, 1, tenant_id="new")
        rows = {row.tenant.tenant_id: row for row in await store.tenants()}
        assert sorted(rows) == ["default", "new"]
        assert rows["new"].tenant == Tenant("new")
        snapshot = await store.snapshot(10)
        assert snapshot.tenants["new"] == Tenant("new")
        assert snapshot.usage["new"] == Usage()

    async def test_a_submission_brings_a_deleted_tenant_back(
        self, store: Store, maker: Maker
    ) -> None:
        """Its row says that it is deleted until a job of it is stored again."""
        await put(store, PutTenant(Tenant("a", deleted=True)))
        (gone,) = [r.tenant for r in await store.tenants() if r.tenant.tenant_id == "a"]
        assert gone == Tenant("a", deleted=True)
        assert (await store.snapshot(10)).tenants["a"].deleted
        await queued(store, maker, 1, tenant_id="a")
        (back,) = [r.tenant for r in await store.tenants() if r.tenant.tenant_id == "a"]
        assert back == Tenant("a", version=2)
        assert (await store.snapshot(10)).tenants["a"] == back

    async def test_settings_are_written_over_what_was_read(self, store: Store) -> None:
        """The version guards: of two who read the same, one is told to look again."""
        quota = Quota(gpus=4, gpus_by_type={"h100": 2}, memory_gb=1.5, usd_per_day=10.0)
        said = Consent(spot=True, allow_larger=True, confirm_above_usd_per_hour=4.5)
        made = Tenant("a", 2.0, 999, False, False, quota, name="A", consent=said)
        await put(store, PutTenant(made))
        (row,) = [row for row in await store.tenants() if row.tenant.tenant_id == "a"]
        assert row.tenant == made
        second = replace(row.tenant, weight=3.0, version=2)
        done = await store.commit([(PutTenant(second),), (PutTenant(second),)], None)
        assert done.applied == (True, False)
        assert done.refusals[1].words == "tenant a is at version 2, not 1"
        assert (await store.snapshot(10)).tenants["a"].weight == 3.0

    async def test_quota_is_counted_in_the_commit_that_admits(
        self, store: Store, maker: Maker
    ) -> None:
        """Two admissions in one commit are judged one after the other; the refusal names what was
        asked for, the quota and the use."""
        await put(store, PutTenant(Tenant("a", quota=Quota(gpus=3))))
        one, two = await queued(store, maker, 2, tenant_id="a", gpu_count=2)
        done = await store.commit([admitted(one), admitted(two)], None)
        assert done.applied == (True, False)
        words = "quota of tenant a: asks for 2 GPUs, the quota is 3, 2 in use"
        assert done.refusals[1].words == words
        again = await store.commit([admitted(two)], None)
        assert again.refusals[0].words == words

    async def test_what_leaves_makes_room_in_the_same_commit(
        self, store: Store, maker: Maker
    ) -> None:
        """A job that goes back gives its part to one that comes."""
        await put(store, PutTenant(Tenant("a", quota=Quota(jobs=1))))
        one, two = await queued(store, maker, 2, tenant_id="a")
        await put(store, *admitted(one))
        back = step(step(one, E.ADMITTED).after, E.WITHDRAWN)
        done = await store.commit([(back,), admitted(two)], None)
        assert done.all_applied, done.refusals

    async def test_types_memory_and_cpus_are_counted(self, store: Store, maker: Maker) -> None:
        """A job that names no CPUs or memory takes its GPUs' part of the machine."""
        quota = Quota(gpus_by_type={"h100": 1}, gpu_memory_gb=999.0, cpus=99.0, memory_gb=999.0)
        await put(store, PutTenant(Tenant("a", quota=quota)))
        facts = {"tenant_id": "a", "cluster": "1xh100", "gpu_memory_mb": 40960}
        (big,) = await queued(store, maker, 1, **facts)
        small, bare = await queued(store, maker, 2, tenant_id="a", cpu_cores=2.0, memory_mb=1024)
        other = maker.job(tenant_id="a", cluster="1xh100")
        await put(store, submitted(other))
        await put(store, *admitted(big))
        await put(store, *admitted(small))
        refused = await store.commit([admitted(other)], None)
        assert "h100 GPUs, the quota is 1, 1 in use" in refused.refusals[0].words
        done = await store.commit([admitted(bare)], None)
        assert done.all_applied, done.refusals
        held = (await store.holdings("a"))["a"]
        assert held == {
            "1xh100": ResourceTotals(1, 1, 0.0, 1, 0.0, 1, 40960.0, 0),
            "1xl4": ResourceTotals(2, 2, 4.0, 0, 2048.0, 0, 0.0, 2),
        }

    async def test_a_job_without_gpus_takes_its_whole_machine(
        self, store: Store, maker: Maker
    ) -> None:
        """It counts no GPUs; of CPUs and memory it counts one part, all that its VM has."""
        await put(store, PutTenant(Tenant("a", quota=Quota(cpus=99.0))))
        (job,) = await queued(store, maker, 1, tenant_id="a", cluster="0xcpu", gpu_count=0)
        await put(store, *admitted(job))
        assert (await store.holdings("a"))["a"] == {"0xcpu": ResourceTotals(1, 0, 0.0, 1, 0.0, 1)}

    async def test_a_tenant_without_a_quota_is_not_counted(
        self, store: Store, maker: Maker
    ) -> None:
        """And one with dollars alone is not either."""
        await put(store, PutTenant(Tenant("a", quota=Quota(usd_per_day=1.0))))
        jobs = await queued(store, maker, 3, tenant_id="a", gpu_count=64)
        done = await store.commit([admitted(job) for job in jobs], None)
        assert done.all_applied

    async def test_usage_decays_and_is_kept(self, store: Store, maker: Maker) -> None:
        """What is charged is forgotten by half-lives; charges of one commit are added up."""
        await queued(store, maker, 1, tenant_id="a")
        charge = Charge("a", 100.0, at(0), WEEK)
        await put(store, charge, replace(charge, gpu_s=20.0))
        await put(store, Charge("a", 10.0, at(WEEK), WEEK))
        await put(store, Charge("a", 8.0, at(0), WEEK))  # late news
        usage = (await store.snapshot(1)).usage["a"]
        assert usage.at == at(WEEK)
        assert abs(usage.gpu_s - 74.0) < 1e-9

    async def test_what_a_job_had_is_kept(self, store: Store, maker: Maker) -> None:
        """Attained service and its place come back as they were written."""
        vm = maker.vm()
        up = ready(vm)
        lease = maker.lease(vm)
        job = maker.job("j")
        moves = [step(job, E.ADMITTED)]
        moves.append(step(moves[-1].after, E.PLACED, lease=lease))
        moves.append(step(moves[-1].after, E.STARTED, at(10)))
        await put(store, submitted(job), NewVm(vm, 10), up, leased(up.after, lease), *moves)
        lost = step(moves[-1].after, E.VM_LOST, at(10 + 7200))
        await put(store, lost)
        found = await store.find_job("j", None)
        assert found.attained_gpu_s == 7200.0
        assert found.due_at == lost.after.due_at

    async def test_what_a_job_was_told_is_kept(self, store: Store, maker: Maker) -> None:
        """The latest start that it was guaranteed; one that was guaranteed none has none."""
        told = replace(maker.job("told"), starts_by=at(1234))
        await put(store, submitted(told), submitted(maker.job("untold")))
        assert (await store.find_job("told", None)).starts_by == at(1234)
        assert (await store.find_job("untold", None)).starts_by is None
        await put(store, step(told, E.ADMITTED))
        assert (await store.find_job("told", None)).starts_by == at(1234)

    async def test_those_that_wait_are_counted_by_tenant_class_and_cluster(
        self, store: Store, maker: Maker
    ) -> None:
        """No further than asked; jobs that were admitted or are held do not wait in the queue."""
        jobs = await queued(store, maker, 5, tenant_id="a")
        await queued(store, maker, 2, tenant_id="a", priority=1500)
        await queued(store, maker, 1, tenant_id="b")
        await put(store, *admitted(jobs[0]))
        assert await store.queued("1xl4", 1, "a", 100) == 4
        assert await store.queued("1xl4", 1, "a", 3) == 3
        assert await store.queued("1xl4", 2, "a", 100) == 2
        assert await store.queued("1xh100", 1, "a", 100) == 0
        assert await store.queued("1xl4", 1, "nobody", 100) == 0


class FairHeads:
    async def test_tenants_in_the_order_asked_for(self, store: Store, maker: Maker) -> None:
        """Class by class, tenant by tenant, who is due first; a tenant that is not named stays
        out, however urgent."""
        for tenant in ("a", "b", "c"):
            for number in range(2):
                name = f"{tenant}{number}"
                await put(store, submitted(patient(maker, name, number, tenant_id=tenant)))
        await put(store, submitted(patient(maker, "b-high", tenant_id="b", priority=1500)))
        asked = HeadsOf("1xl4", 3, QueueRule.FAIR, ("b", "a"))
        assert set(await heads(store, asked)) == {"b-high", "b0", "b1", "a0"}

    async def test_one_tenant_fills_the_room_alone(self, store: Store, maker: Maker) -> None:
        """Few of each tenant are read first; if that is not enough, more of those who have more."""
        jobs = await queued(store, maker, 30, tenant_id="whale")
        asked = HeadsOf("1xl4", 20, QueueRule.FAIR, ("none", "whale"))
        found = await heads(store, asked)
        assert sorted(found) == sorted(job.spec.job_id for job in jobs[:20])

    async def test_a_gang_is_one_head(self, store: Store, maker: Maker) -> None:
        """Gangs are read until their members fill the room, then as many gangs or jobs more as are
        spare; of each gang all members are read."""
        for name, size in (("a", 3), ("b", 3), ("c", 1), ("d", 2), ("e", 1)):
            gang = [
                patient(maker, f"{name}{rank}", ord(name), replicas=size) for rank in range(size)
            ]
            lead = gang[0].uid
            of = (Membership(lead, rank, size) if size > 1 else None for rank in range(size))
            await put(
                store, *(submitted(replace(j, gang=m)) for j, m in zip(gang, of, strict=True))
            )
        for rule in QueueRule:
            asked = HeadsOf("1xl4", 4 + 2, rule, ("default",), room=4)
            found = await heads(store, asked)
            assert sorted(found) == ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "d0", "d1"], rule
            none = replace(asked, limit=1, room=0)
            assert sorted(await heads(store, none)) == ["a0", "a1", "a2"], rule

    async def test_arrival_alone_and_clusters_apart(self, store: Store, maker: Maker) -> None:
        """A cluster that is not asked for is not read."""
        await put(store, submitted(patient(maker, "late", 9, priority=900)))
        await put(store, submitted(patient(maker, "early", 1, priority=100)))
        await put(store, submitted(patient(maker, "other", cluster="1xh100")))
        assert await heads(store, HeadsOf("1xl4", 1, QueueRule.FIFO)) == ["early"]
        assert await heads(store, HeadsOf("1xl4", 1, QueueRule.PRIORITY)) == ["late"]
        assert await heads(store) == []

    async def test_the_question_sees_what_lives(self, store: Store, maker: Maker) -> None:
        """Before the queue is read: jobs that hold or await a VM, tenants, clusters with a
        queue."""
        one, _ = await queued(store, maker, 2, tenant_id="a")
        await put(store, *admitted(one))
        seen: list[Live] = []

        def ask(live: Live) -> list[HeadsOf]:
            seen.append(live)
            return []

        snapshot = await store.snapshot(10, ask)
        (live,) = seen
        assert [job.uid for job in live.jobs] == [one.uid] == [job.uid for job in snapshot.jobs]
        assert live.tenants.keys() >= {"a"}
        assert list(live.queues) == ["1xl4"]
        assert live.now == snapshot.now
