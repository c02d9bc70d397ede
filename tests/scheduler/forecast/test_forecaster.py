"""What waiting jobs are told while somebody leads, and what is learned from how it came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.changes import AtomicBatch, Committed, PutForecast, Snapshot
from core.clouds import CLOUDS
from core.cluster import ClusterSpec
from core.forecast import Forecast, PastRun, Record
from core.job import E, Job, JobEvent, Membership
from core.job_steps import EventFacts, advance
from core.ports import Store
from core.queueing import HeadsOf
from core.region_blocks import BlockKind, RegionBlock
from core.supply import BOOT_S
from core.tenants import Quota, Tenant
from core.vm import VmState
from scheduler.forecast.estimates import HANDOVER_S
from scheduler.forecast.forecaster import SAME_S, Forecaster
from scheduler.forecast.past_runs import DAYS, READ_MAX, Runtimes
from scheduler.forecast.run_times import ENOUGH, NOTHING_LIKE_IT
from scheduler.operations.metrics import Metrics
from scheduler.queue.budgets import BudgetStatus
from tests.builders import NOW, REGIONS, RULES, at, cluster, job, lease_on, live, snapshot, vm

DELIVERY_S = CLOUDS["mig"].delivery_s

RUNS = (E.ADMITTED, E.PLACED, E.CLAIMED, E.STARTED)


class Shelf:
    """A store of forecasts alone."""

    def __init__(self) -> None:
        self.queue: list[Job] = []
        self.ended: list[PastRun] = []
        self.kept: dict[str, Forecast] = {}
        self.writes = 0
        self.asked: list[datetime] = []

    async def heads(self, wanted: Sequence[HeadsOf], limit: int) -> Sequence[Job]:
        names = {heads.cluster for heads in wanted}
        tenants = {tenant for heads in wanted for tenant in heads.tenants}
        mine = [j for j in self.queue if j.cluster in names and j.spec.tenant_id in tenants]
        return mine[:limit]

    async def runs(self, since: datetime, limit: int) -> Sequence[PastRun]:
        assert limit == READ_MAX
        self.asked.append(since)
        return [run for run in reversed(self.ended) if run.ended_at > since]

    async def forecasts(self) -> Sequence[Forecast]:
        return list(self.kept.values())

    async def commit(self, units: Sequence[AtomicBatch], term: int | None) -> Committed:
        assert term == 7
        for (change,) in units:
            assert isinstance(change, PutForecast)
            self.kept[change.forecast.cluster] = change.forecast
            self.writes += 1
        return Committed((True,) * len(units))


class Clock:
    """Moves when it is told."""

    seconds = 0.0

    def now(self) -> datetime:
        return at(self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class House:
    """A leader's forecaster over one cluster."""

    def __init__(self, *clusters: ClusterSpec) -> None:
        self.shelf, self.clock, self.metrics = Shelf(), Clock(), Metrics()
        self.held: dict[str, str] = {}
        store = cast("Store", self.shelf)
        self.runtimes = Runtimes(store, self.clock)
        guess = self.runtimes.guess
        self.forecaster = Forecaster(
            store,
            guess,
            lambda: 7,
            self.metrics,
            self.clock,
            live(*clusters or (cluster(vm_max=1),)),
            lambda: BudgetStatus(self.held),
        )

    async def look(self, snap: Snapshot, *moves: tuple[Job, Job]) -> Forecast:
        self.forecaster.seen(snap, moves)
        await self.runtimes.refresh()
        await self.forecaster.look()
        return self.shelf.kept["1xl4"]

    def ran(self, count: int, span_s: float, name: str = "train") -> None:
        """Runs that have ended, one a minute."""
        for n in range(count):
            ended_at = NOW - timedelta(minutes=count - n)
            uid = f"run-{len(self.shelf.ended)}"
            self.shelf.ended.append(
                PastRun(uid, "default", name, "", (), "1xl4", 1, span_s, ended_at)
            )


def busy() -> Job:
    """A job that has run for 40 s."""
    return replace(job(1, *RUNS, name="train"), started_at=at(-40))


def snapshot_of(*jobs: Job, now_s: float = 0.0, tenants: Sequence[Tenant] = ()) -> Snapshot:
    known = {tenant.tenant_id: tenant for tenant in (Tenant("default"), *tenants)}
    there = (vm("vm-1", leases=("lease-1",)),)
    return replace(snapshot(jobs, there, now=at(now_s)), tenants=known)


def stepped(job: Job, *events: JobEvent, now: datetime = NOW) -> Job:
    for event in events:
        lease = lease_on("vm-1") if event is E.PLACED else None
        job = advance(job, event, now, RULES, facts=EventFacts(lease=lease))
    return job


async def test_told_from_what_ran_before() -> None:
    """Runs of this kind take 100 s, one has run for 40 s: the next starts in 60 s, and the one
    after it 100 s later."""
    house = House()
    house.ran(9, 100.0)
    house.shelf.queue = [job(2, name="train-2"), job(3, name="train-3")]
    said = await house.look(snapshot_of(busy(), *house.shelf.queue))
    first, second = (said.jobs[waits.uid] for waits in house.shelf.queue)
    assert first.told is not None
    assert second.told is not None
    assert (first.told.p50_at - NOW).total_seconds() == pytest.approx(60 + HANDOVER_S)
    assert (second.told.p50_at - NOW).total_seconds() == pytest.approx(160 + HANDOVER_S)
    assert second.based_on == "past runs like those of the 2 jobs that run or are ahead"
    assert second.run_p90_s == 100.0
    assert second.run_based_on == "9 past runs of this name on these GPUs"


async def test_without_history_it_is_wide_and_says_so() -> None:
    """Nobody has ended yet: the span is wide, and its words tell why."""
    house = House()
    house.shelf.queue = [job(2)]
    said = (await house.look(snapshot_of(busy(), *house.shelf.queue))).jobs["job-uid-0002"]
    assert said.told is not None
    span = said.told.p90_at - said.told.p50_at
    assert span > timedelta(minutes=1)
    assert said.based_on == "wide: nothing like the job that runs or is ahead has ended yet"
    assert (said.run_p50_s, said.run_based_on) == (None, NOTHING_LIKE_IT)


async def test_who_may_not_start_is_told_nothing() -> None:
    """A tenant whose budget is spent is left out; one whose quota is too small has no start."""
    house = House()
    house.ran(ENOUGH, 100.0)
    house.held = {"poor": "has used $5"}
    house.shelf.queue = [job(2, tenant_id="poor"), job(3, tenant_id="small"), job(4)]
    tenants = [Tenant("poor"), Tenant("small", quota=Quota(gpus=0))]
    said = await house.look(snapshot_of(busy(), *house.shelf.queue, tenants=tenants))
    assert set(said.jobs) == {"job-uid-0003", "job-uid-0004"}
    assert said.jobs["job-uid-0003"].told is None
    assert said.jobs["job-uid-0004"].told is not None


async def test_the_first_word_counts() -> None:
    """What a job was told first is kept while it waits, by a new leader too; when it starts, that
    is held against it, counted, and learned from."""
    house = House()
    house.ran(9, 100.0)
    waits = house.shelf.queue[:] = [job(2, name="train")]
    first = (await house.look(snapshot_of(busy(), *waits))).jobs["job-uid-0002"].first
    assert first is not None
    house.clock.seconds = 90.0
    late = await house.look(snapshot_of(busy(), *waits, now_s=90.0))
    assert late.jobs["job-uid-0002"].first == first
    assert late.jobs["job-uid-0002"].told != first
    heir = House()
    heir.shelf.kept = house.shelf.kept
    await heir.forecaster.restore()
    starting = stepped(waits[0], *RUNS[:3])
    running = stepped(starting, E.STARTED, now=at(500))
    heir.forecaster.seen(snapshot_of(running, now_s=500.0), [(starting, running)])
    heir.shelf.queue = [job(3)]
    said = await heir.look(snapshot_of(running, *heir.shelf.queue, now_s=500.0))
    assert (said.record.told, said.record.p50_held, said.record.p90_held) == (1, 0, 0)
    assert said.record.p90_factor > 1.0
    families = {f.name: f for f in text_string_to_metric_families(heir.metrics.text().decode())}
    (started,) = [
        s for s in families["gpu_scheduler_eta_starts"].samples if s.name.endswith("_total")
    ]
    assert (started.labels, started.value) == ({"cluster": "1xl4"}, 1.0)


async def test_nothing_new_is_not_said_again() -> None:
    """While nothing moves, one word a minute is enough; without a queue nothing is said but that
    there is none."""
    house = House()
    house.shelf.queue = [job(2)]
    same = snapshot_of(busy(), *house.shelf.queue)
    await house.look(same)
    await house.look(same)
    assert house.shelf.writes == 1
    house.clock.seconds = SAME_S
    await house.look(snapshot_of(busy(), *house.shelf.queue, now_s=SAME_S))
    assert house.shelf.writes == 2
    house.shelf.queue = []
    assert (await house.look(snapshot_of(busy(), now_s=70))).jobs == {}
    house.clock.seconds = 5 * SAME_S
    await house.look(snapshot_of(busy(), now_s=300))
    assert house.shelf.writes == 3


def block(region: str, kind: BlockKind = BlockKind.STOCKOUT, until_s: float = 600.0) -> RegionBlock:
    return RegionBlock(region, "", "g2-standard-4", False, kind, NOW, NOW, at(until_s), 1, "")


def two_places(*jobs: Job, blocks: Sequence[RegionBlock]) -> Snapshot:
    """An idle VM in us-central1, and one in us-east1 whose job has just begun."""
    lease = replace(lease_on("vm-2", 2), region="us-east1")
    runs = replace(job(2, *RUNS, name="train"), lease=lease, started_at=NOW)
    there = (vm("vm-1"), vm("vm-2", region="us-east1", leases=("lease-2",)))
    return replace(
        snapshot((runs, *jobs), there, tuple(blocks)), tenants={"default": Tenant("default")}
    )


async def starts_s(*jobs: Job, blocks: Sequence[RegionBlock], run_s: float = 5000.0) -> list[float]:
    """How long each one waits, as often as not, where others of its kind run for so long."""
    house = House(cluster(vm_max=4))
    house.ran(9, run_s)
    house.shelf.queue = [*jobs]
    said = await house.look(two_places(*jobs, blocks=blocks))
    moments = [said.jobs[waits.uid].told for waits in jobs]
    return [(told.p50_at - NOW).total_seconds() if told else math.inf for told in moments]


async def test_whose_region_is_blocked_waits_for_its_end() -> None:
    """An idle VM elsewhere is not for it: it is told the end of the block and the usual start of a
    VM; of its regions the first to be asked again counts. A region that is not blocked changes
    nothing, and others go before."""
    east, west = block("us-east1"), block("europe-west4", until_s=300.0)
    cold_s = DELIVERY_S + BOOT_S
    pinned, free = job(3, name="train", regions=("us-east1",)), job(4, name="train")
    here, other = await starts_s(pinned, free, blocks=[east])
    assert here == pytest.approx(600 + cold_s + HANDOVER_S, rel=0.05)
    assert other < 200
    both = replace(pinned, spec=replace(pinned.spec, regions=("us-east1", "europe-west4")))
    (sooner,) = await starts_s(both, blocks=[east, west])
    assert sooner == pytest.approx(300 + cold_s + HANDOVER_S, rel=0.05)
    assert await starts_s(both, blocks=[east]) == await starts_s(both, blocks=[])


async def test_a_blocked_region_still_has_the_vms_that_are_there() -> None:
    """The job that runs there ends before the block does: the first gets its VM, the second the
    first one's, the third would have to wait for longer than the block lasts."""
    waiting = [job(n, name="train", regions=("us-east1",)) for n in (3, 4, 5)]
    found = await starts_s(*waiting, blocks=[block("us-east1")], run_s=280.0)
    assert found[:2] == pytest.approx([280 + HANDOVER_S, 560 + HANDOVER_S])
    assert found[2] == pytest.approx(600 + DELIVERY_S + BOOT_S + HANDOVER_S, rel=0.05)


async def test_all_regions_are_blocked() -> None:
    """The moment rests on the first block that ends. Nobody knows what the region has then: it is
    not held against those who said it, whatever factor was learned the block lasts as it does."""
    house = House(cluster(vm_max=1))
    house.shelf.queue = [job(2)]
    ends = {region: 600.0 + n for n, region in enumerate(REGIONS)}
    blocks = tuple(block(region, until_s=until_s) for region, until_s in ends.items())
    asked = vm("vm-9", VmState.BOOTING, refused=True)
    seen = replace(snapshot((job(2),), (asked,), blocks), tenants={"default": Tenant("default")})
    early = Record(p50_factor=0.1, p90_factor=0.1)
    house.shelf.kept = {"1xl4": Forecast("1xl4", NOW, record=early)}
    await house.forecaster.restore()
    said = (await house.look(seen)).jobs["job-uid-0002"]
    assert said.told is not None
    assert timedelta(seconds=600) < said.told.p50_at - NOW < said.told.p90_at - NOW
    assert said.first is None
    assert said.based_on == (
        "us-central1 stockout until 12:10:00 UTC: then as soon as VMs usually come there, "
        "if it has any"
    )


async def test_what_only_people_can_mend_has_no_moment() -> None:
    """It says what is needed, though the region is looked at again now and then."""
    house = House(cluster(vm_max=4))
    regions = ("us-east1", "europe-west4")
    house.shelf.queue = [job(3, regions=regions), job(4, max_usd_per_hour=0.5)]
    blocks = [block("us-east1", BlockKind.MISSING), block(regions[1], BlockKind.PERMISSION)]
    seen = replace(
        snapshot((), (vm("vm-1"),), tuple(blocks)), tenants={"default": Tenant("default")}
    )
    said = await house.look(seen)
    pinned, cheap = said.jobs["job-uid-0003"], said.jobs["job-uid-0004"]
    assert (pinned.told, cheap.told) == (None, None)
    assert pinned.based_on == (
        "needs somebody to act: europe-west4 needs a permission for the scheduler; us-east1 needs "
        "its group (zen infra gcloud prints how to make it)"
    )
    assert cheap.based_on.startswith("no region is within its price cap of $0.5 per VM and hour")


async def test_a_gang_is_told_once() -> None:
    """Under the id of its first member, when there is room for all of it."""
    house = House(cluster(vm_max=2))
    house.ran(9, 100.0)
    gang = [
        replace(job(n, name="big", replicas=2), gang=Membership("job-uid-0003", n - 3, 2))
        for n in (3, 4)
    ]
    house.shelf.queue = [*gang]
    said = await house.look(snapshot_of(busy(), *gang))
    assert list(said.jobs) == ["job-uid-0003"]
    told = said.jobs["job-uid-0003"].told
    assert told is not None
    assert (told.p50_at - NOW).total_seconds() >= 60.0


async def test_far_back_goes_on_at_the_pace_of_those_before() -> None:
    """A tenant's job at twice the position of the last one that was played: twice its span."""
    house = House()
    house.ran(9, 100.0)
    house.shelf.queue = [job(n, name="train") for n in range(2, 12)]
    said = await house.look(snapshot_of(busy(), *house.shelf.queue))
    (pace,) = said.paces
    assert (pace.tenant_id, pace.position) == ("default", 10)
    far = said.beyond("default", pace.tier, 20)
    assert far is not None
    assert far.told is not None
    assert (far.told.p50_at - NOW).total_seconds() == pytest.approx(2 * pace.p50_s)
    assert said.beyond("stranger", pace.tier, 20) is None


async def test_runs_are_read_once() -> None:
    """Each reading begins a little before the newest end that is known, and counts nothing twice:
    four runs that are read again are not enough for a guess, a fifth is."""
    shelf, clock = Shelf(), Clock()
    runtimes = Runtimes(cast("Store", shelf), clock)
    house = House()
    house.shelf = shelf
    house.ran(ENOUGH - 1, 100.0)
    for _ in range(2):
        await runtimes.refresh()
    assert shelf.asked[0] == NOW - timedelta(days=DAYS)
    assert shelf.ended[-1].ended_at - shelf.asked[1] < timedelta(minutes=1)
    spec = job(2, name="train-2", max_runtime_s=50.0).spec
    assert runtimes.expected_s(spec, "1xl4") is None
    shelf.ended.append(replace(shelf.ended[-1], uid="late"))
    await runtimes.refresh()
    assert runtimes.guess(job(2, name="train-2")).at(0.5) == 100.0
    assert runtimes.expected_s(spec, "1xl4") == 50.0
