"""VMs, their limit, and what is known about the cloud."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from core.changes import (
    ClearAlert,
    CloudRequest,
    DeadLetter,
    DropRegionBlock,
    ForgetRegion,
    NewRequest,
    NewVm,
    PutRegionBlock,
    PutRegionStatus,
    PutSupplyHistory,
    RaiseAlert,
    RegionStatus,
    SettleRequest,
    VmHeartbeat,
    VmMove,
)
from core.health import BadGpu, FailedRun, GpuFault, VmHealth
from core.job import JobEvent
from core.messages import GpuReading, VmReadings
from core.ports import Store
from core.reads import Reads
from core.region_blocks import BlockKind, RegionBlock
from core.retention import RetentionRules
from core.supply import ARRIVALS_HORIZON_S, DurationEstimate, Shortage, SupplyHistory, SupplyOutcome
from core.vm import VmEvent, advance_vm
from tests.db.builders import (
    Maker,
    at,
    leased,
    put,
    put_ready_vm,
    submitted,
)

E = JobEvent


class SupplyHistories:
    async def test_supply_history_comes_back_as_it_went_in(
        self, store: Store, reads: Reads
    ) -> None:
        """Every number of a place survives storage; the newest record of a place stands."""
        seen = SupplyHistory(
            region="us-central1",
            zone="us-central1-a",
            machine_type="g2-standard-4",
            spot=True,
            updated_at=at(5),
            hits=2.5,
            misses=1.25,
            last=SupplyOutcome.MISS,
            last_at=at(4),
            delivery=DurationEstimate(3.0, 3.9, 0.25),
            boot=DurationEstimate(2.0, 4.5, 0.5),
            room=2.5,
            preempted=0.75,
            vm_hours=31.5,
            shortages=(Shortage(0, at(-90)), Shortage(12, at(3))),
        )
        whole = SupplyHistory("us-central1", "", "g2-standard-4", True, updated_at=at(1))
        await put(store, PutSupplyHistory(seen), PutSupplyHistory(whole))
        for second, outcome in enumerate(SupplyOutcome, 9):
            then = at(second)
            newer = replace(seen, hits=3.5, last=outcome, last_at=then, updated_at=then)
            await put(store, PutSupplyHistory(newer))
            assert (await store.snapshot(0)).supply == (whole, newer)
            assert tuple(await reads.supply()) == (whole, newer)

    async def test_arrivals_are_the_newest_submissions_of_each_cluster(
        self, store: Store, maker: Maker
    ) -> None:
        """However they ended, oldest first: a rate is made of them. Older ones do not count."""
        now = (await store.snapshot(0)).now
        old = maker.job(now=now - timedelta(seconds=ARRIVALS_HORIZON_S + 60))
        mine = [maker.job(now=now - timedelta(seconds=s)) for s in (60, 30)]
        other = maker.job(now=now - timedelta(seconds=5), cluster="8xh100")
        for job in (old, *mine, other):
            await put(store, submitted(job))
        found = (await store.snapshot(0)).arrivals
        assert {name: arrivals.times for name, arrivals in found.items()} == {
            "1xl4": tuple(job.submitted_at for job in mine),
            "8xh100": (other.submitted_at,),
        }

    async def test_what_nobody_asked_about_for_long_is_forgotten(self, store: Store) -> None:
        """Places and blocks without news go at their age; fresh ones stay."""
        now = (await store.snapshot(0)).now
        for zone, days in (("old", 40), ("new", 1)):
            then = now - timedelta(days=days)
            await put(
                store, PutSupplyHistory(SupplyHistory("r", zone, "m", False, updated_at=then))
            )
            block = RegionBlock("r", zone, "m", False, BlockKind.QUOTA, then, then, then, 1, "")
            await put(store, PutRegionBlock(block))
        counts = await store.prune(RetentionRules(knowledge_days=30.0), 10)
        assert (counts["experience"], counts["troubles"]) == (1, 1)
        snapshot = await store.snapshot(0)
        assert [seen.zone for seen in snapshot.supply] == ["new"]
        assert [block.zone for block in snapshot.blocks] == ["new"]


class Machines:
    async def test_a_vm_comes_back_as_it_went_in(self, store: Store, maker: Maker) -> None:
        """Every field of a VM survives storage."""
        vm = replace(maker.vm(), together="gang-0001-bcdf")
        await put(store, NewVm(vm, 1))
        assert tuple((await store.snapshot(1)).vms) == (vm,)
        moved = replace(
            advance_vm(vm, VmEvent.WORKER_READY, at(1), "said READY"),
            zone="z",
            instance_id="77",
            boot_nonce="n",
            running_since=at(1),
            last_beat_at=at(2),
            idle_since=at(3),
            taken=True,
            health=VmHealth(
                (BadGpu(1, GpuFault.HOT, "is hot (91 °C)", at(1)),),
                (FailedRun(at(1), "job-1", "0123456789ab"),),
            ),
            kept_until=at(9),
            ends_at=at(99),
        )
        await put(store, VmMove(vm, moved))
        assert tuple((await store.snapshot(1)).vms) == (moved,)

    async def test_limit_binds_the_cluster(self, store: Store, maker: Maker) -> None:
        """One VM too many is refused; another cluster has its own limit."""
        batches = [(NewVm(maker.vm(), 2),) for _ in range(3)]
        committed = await store.commit([*batches, (NewVm(maker.vm(cluster="8xh100"), 1),)], None)
        assert committed.applied == (True, True, False, True)
        assert committed.refusals[2].words == "limit: cluster 1xl4 counts 2 VMs, vm_max is 2"

    async def test_limit_in_a_race(self, store: Store, maker: Maker) -> None:
        """Many who create at once never exceed the limit, and reach it."""
        batches = [[(NewVm(maker.vm(), 5),), (NewVm(maker.vm(), 5),)] for _ in range(10)]
        results = await asyncio.gather(*(store.commit(batch, None) for batch in batches))
        assert sum(sum(result.applied) for result in results) == 5
        assert len((await store.snapshot(0)).vms) == 5

    async def test_deleting_vms_still_count(self, store: Store, maker: Maker) -> None:
        """A VM counts until it is observed gone."""
        vm = maker.vm()
        deleting = VmMove(vm, advance_vm(vm, VmEvent.DELETE_ASKED, at(1), "idle"))
        await put(store, NewVm(vm, 1), deleting)
        assert not (await store.commit([(NewVm(maker.vm(), 1),)], None)).all_applied
        await put(
            store, VmMove(deleting.after, advance_vm(deleting.after, VmEvent.NOT_LISTED, at(2), ""))
        )
        await put(store, NewVm(maker.vm(), 1))

    async def test_gone_vm_is_seen_until_its_jobs_have_heard(
        self, store: Store, maker: Maker
    ) -> None:
        """With a lease it stays in the snapshot; without, it leaves it."""
        vm = await put_ready_vm(store, maker)
        held = leased(vm, maker.lease(vm)).after
        await put(store, VmMove(vm, held))
        gone = advance_vm(held, VmEvent.NOT_LISTED, at(1), "observed gone", taken=True)
        await put(store, VmMove(held, gone))
        assert tuple((await store.snapshot(0)).vms) == (gone,)
        await put(store, VmMove(gone, replace(gone, version=gone.version + 1, leases=())))
        assert tuple((await store.snapshot(0)).vms) == ()

    async def test_a_name_lives_once(self, store: Store, maker: Maker) -> None:
        """No two active VMs share a name, but a name comes back after its VM is gone, even in
        the same call."""
        vm = maker.vm("zen-1")
        await put(store, NewVm(vm, 9))
        twice = await store.commit([(NewVm(maker.vm("zen-1"), 9),)], None)
        assert twice.applied == (False,)
        assert "zen-1" in twice.refusals[0].words
        gone = VmMove(vm, advance_vm(vm, VmEvent.NOT_LISTED, at(1), "observed gone"))
        again = maker.vm("zen-1")
        assert (await store.commit([(gone,), (NewVm(again, 1),)], None)).all_applied
        assert [v.uid for v in (await store.snapshot(0)).vms] == [again.uid]

    async def test_stale_vm_move(self, store: Store, maker: Maker) -> None:
        """A drain that raced with a placement loses."""
        vm = await put_ready_vm(store, maker)
        await put(store, leased(vm, maker.lease(vm)))
        drain = VmMove(vm, advance_vm(vm, VmEvent.DRAIN_ASKED, at(1), "idle"))
        committed = await store.commit([(drain,)], None)
        assert committed.refusals[0].words == f"VM {vm.name} is at version 3, not 2"

    async def test_heartbeats_never_go_back(self, store: Store, reads: Reads, maker: Maker) -> None:
        """The newest heartbeat stays, also when a move that did not know it comes later; no version
        changes."""
        vm = await put_ready_vm(store, maker)
        hot = (GpuReading(0, util=0.9, temp_c=81.0),)
        await put(store, VmHeartbeat(vm.uid, at(10), VmReadings(hot)))
        await put(store, VmHeartbeat(vm.uid, at(9), VmReadings((GpuReading(0, util=0.1),))))
        await put(store, VmHeartbeat(vm.uid, at(12)), VmHeartbeat(vm.uid, at(11)))
        await put(store, leased(vm, maker.lease(vm)))
        (row,) = (await reads.vms(None, None, False, 10, None)).rows
        assert row.vm.last_beat_at == at(12)
        assert row.vm.version == vm.version + 1
        assert row.readings.gpus == hot

    async def test_numbers_of_heartbeats_never_go_back(
        self, store: Store, reads: Reads, maker: Maker
    ) -> None:
        """Also the number of a heartbeat that is older than the newest one is kept: else it would
        show life when somebody sends it again."""
        vm = await put_ready_vm(store, maker)
        await put(store, VmHeartbeat(vm.uid, at(10), seq=5))
        await put(store, VmHeartbeat(vm.uid, at(9), seq=7))
        await put(store, VmHeartbeat(vm.uid, at(11), seq=6))
        (row,) = (await reads.vms(None, None, False, 10, None)).rows
        assert (row.vm.last_beat_at, row.vm.heard_seq) == (at(11), 7)
        (seen,) = (await store.snapshot(1)).vms
        assert (seen.last_beat_at, seen.heard_seq) == (at(11), 7)

    async def test_heartbeat_of_an_unknown_vm(self, store: Store, maker: Maker) -> None:
        """A heartbeat of a VM that is not stored harms nobody."""
        await put(store, VmHeartbeat(maker.vm().uid, at(1)))


class Knowledge:
    async def test_requests(self, store: Store) -> None:
        """A cloud call is seen until it is settled, once."""
        request = CloudRequest("r1", "create", "1xl4", "us-central1", ("a", "b"), "demand", at(0))
        await put(store, NewRequest(request))
        assert (await store.snapshot(0)).requests == (request,)
        await put(store, SettleRequest("r1", "accepted", at(1)))
        assert (await store.snapshot(0)).requests == ()

    async def test_request_for_several_at_once(self, store: Store) -> None:
        """The name of the request and the time that its VMs may run are there for the leader that
        repeats the call; another kind of call than the four is refused."""
        asked = CloudRequest("r1", "queue", "1xl4", "us-central1", ("a", "b"), "a gang", at(0))
        asked = replace(asked, together="gang-0001-bcdf", run_s=3600.0)
        given_up = replace(asked, request_id="r2", kind="unqueue", run_s=0.0, created_at=at(1))
        await put(store, NewRequest(asked), NewRequest(given_up))
        assert (await store.snapshot(0)).requests == (asked, given_up)
        odd = NewRequest(replace(asked, request_id="r3", kind="resize"))
        assert not (await store.commit([(odd,)], None)).all_applied

    async def test_region_blocks(self, store: Store, reads: Reads) -> None:
        """A region block is replaced by its key and dropped by it."""
        kind = BlockKind.STOCKOUT
        first = RegionBlock("r", "", "g2", False, kind, at(0), at(0), at(45), 1, "no L4")
        second = replace(first, last_seen=at(50), until=at(140), count=2)
        await put(store, PutRegionBlock(first))
        await put(store, PutRegionBlock(second))
        assert (await store.snapshot(0)).blocks == (second,)
        assert tuple(await reads.blocks()) == (second,)
        await put(store, DropRegionBlock(second.key))
        assert (await store.snapshot(0)).blocks == ()

    async def test_every_kind_of_region_block_can_be_kept(self, store: Store) -> None:
        """The store knows the same kinds as the code."""
        made = [
            RegionBlock("r", "", "g2", False, kind, at(0), at(0), at(45), 1, "no L4")
            for kind in sorted(BlockKind)
        ]
        await put(store, *map(PutRegionBlock, made))
        assert (await store.snapshot(0)).blocks == tuple(made)

    async def test_region_status(self, store: Store, reads: Reads) -> None:
        """The newest word about a region stays."""
        await put(store, PutRegionStatus(RegionStatus("1xl4", "r", 1, "growing")))
        newest = RegionStatus("1xl4", "r", 2, "enough", at(1))
        await put(store, PutRegionStatus(newest))
        assert list(await reads.region_statuses()) == [newest]

    async def test_regions_are_known_until_they_are_forgotten(
        self, store: Store, reads: Reads
    ) -> None:
        """The next leader knows where we have been; forgetting twice is the same as once."""
        assert list(await store.driven()) == []
        for cluster, region in (("8xh100", "b"), ("1xl4", "b"), ("1xl4", "a")):
            await put(store, PutRegionStatus(RegionStatus(cluster, region, 0, "")))
        assert list(await store.driven()) == [("1xl4", "a"), ("1xl4", "b"), ("8xh100", "b")]
        await put(store, ForgetRegion("1xl4", "b"), ForgetRegion("1xl4", "b"))
        assert list(await store.driven()) == [("1xl4", "a"), ("8xh100", "b")]
        assert len(await reads.region_statuses()) == 2
        again = PutRegionStatus(RegionStatus("1xl4", "b", 1, "back"))
        await put(store, ForgetRegion("1xl4", "a"), again)
        assert list(await store.driven()) == [("1xl4", "b"), ("8xh100", "b")]

    async def test_alerts(self, store: Store, reads: Reads) -> None:
        """A repeat refreshes the open alert; after it is cleared a new one opens."""
        await put(store, RaiseAlert("quota", "r", "warning", "first", at(0)))
        await put(store, RaiseAlert("quota", "r", "error", "again", at(5)))
        (row,) = await reads.alerts(True, 10)
        assert (row.severity, row.message, row.count) == ("error", "again", 2)
        assert (row.raised_at, row.last_seen_at, row.cleared_at) == (at(0), at(5), None)
        assert set((await store.snapshot(0)).open_alerts) == {("quota", "r")}
        await put(store, ClearAlert("quota", "r", at(9)), ClearAlert("none", "x", at(9)))
        assert (await store.snapshot(0)).open_alerts == {}
        await put(store, RaiseAlert("quota", "r", "error", "anew", at(10)))
        assert len(await reads.alerts(True, 10)) == 1
        assert len(await reads.alerts(False, 10)) == 2

    async def test_alert_raised_and_cleared_in_one_unit(self, store: Store) -> None:
        """Changes to one alert take effect in their order."""
        await put(store, RaiseAlert("k", "s", "error", "m", at(0)), ClearAlert("k", "s", at(1)))
        assert (await store.snapshot(0)).open_alerts == {}

    async def test_dead_letters(self, store: Store) -> None:
        """A dead letter may come again."""
        dead_letter = DeadLetter("m1", "heartbeats", b"\x00\xff", {"a": "b"}, "not JSON", at(0))
        await put(store, dead_letter)
        await put(store, dead_letter)
