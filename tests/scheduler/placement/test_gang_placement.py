"""Where a gang looks for its VMs: what places have given counts, and its deadline."""

from __future__ import annotations

from dataclasses import replace

from core.job import Job, Membership
from core.messages import OutMessage
from core.region_blocks import EVERYWHERE, BlockKind, RegionBlock
from core.supply import SupplyHistory, SupplyOutcome
from scheduler.placement.gang_placement import Regions, blocked_regions
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, REGIONS, RULES, at, cluster, job, snapshot

SPEC = cluster(vm_max=16)
CHEAP, DEARER, DEAREST = REGIONS


def gang(**spec: object) -> Job:
    made = job(1, cluster="1xl4", replicas=8, **spec)
    return replace(made, gang=Membership(made.uid, 0, 8))


def seen_in(
    region: str, room: float, last: SupplyOutcome, offering: str = SPEC.offering
) -> SupplyHistory:
    return SupplyHistory(
        *(region, "", offering, False, NOW), hits=9.0, last=last, last_at=NOW, room=room
    )


def chosen(first: Job, *supply: SupplyHistory, blocked: str = "", now_s: float = 0.0) -> str:
    blocks = (
        (
            RegionBlock(
                blocked,
                "",
                SPEC.machine_type,
                False,
                BlockKind.STOCKOUT,
                NOW,
                NOW,
                at(9e9),
                1,
                "",
            ),
        )
        if blocked
        else ()
    )
    snap = replace(snapshot((first,), now=at(now_s)), supply=supply)
    plan = PlanBuilder(snap, RULES, lambda _: OutMessage("control", b""))
    return Regions(plan, SPEC, blocks).choose(first, 8)


def test_the_region_that_gave_enough_goes_first() -> None:
    """The cheapest gave two at most, the next one twelve: a gang of eight looks there. A region
    that nobody knows is not preferred to a cheaper one."""
    small, large = seen_in(CHEAP, 2.0, SupplyOutcome.MISS), seen_in(DEARER, 12.0, SupplyOutcome.HIT)
    assert chosen(gang(), small, large) == DEARER
    assert chosen(gang(), small) == CHEAP
    assert chosen(gang()) == CHEAP


def test_a_gang_with_time_waits_for_its_price() -> None:
    """The cheap region is stocked out. Without a deadline the gang looks elsewhere; with one it
    stays while there is slack, and takes what there is when that is gone."""
    assert chosen(gang(), blocked=CHEAP) == DEARER
    patient = gang(deadline=at(100_000), max_runtime_s=3600.0)
    assert chosen(patient, blocked=CHEAP) == CHEAP
    assert chosen(patient, blocked=CHEAP, now_s=95_000) == DEARER


def test_a_block_of_all_regions_counts() -> None:
    """A quota over all regions was met elsewhere: no region is free, and none is taken for it."""
    met = RegionBlock(CHEAP, "", SPEC.offering, False, BlockKind.QUOTA, NOW, NOW, at(900), 1, "")
    others = [replace(met, region=region, zone=EVERYWHERE) for region in (DEARER, DEAREST)]
    zonal = replace(met, region="us-north1", zone="us-north1-a")
    assert set(blocked_regions(SPEC, [met, *others, zonal], NOW)) == set(REGIONS)


def test_vms_without_gpus_have_a_record_of_their_own() -> None:
    """What a machine type with GPUs gave says nothing about the same one without."""
    spec = cluster("0xcpu", vm_max=16, machine_type="n1-standard-4")
    first = gang(gpu_count=0)
    small = seen_in(CHEAP, 2.0, SupplyOutcome.MISS, spec.offering)
    large = seen_in(DEARER, 12.0, SupplyOutcome.HIT, spec.offering)
    with_gpus = seen_in(CHEAP, 32.0, SupplyOutcome.HIT, spec.machine_type)
    snap = replace(snapshot((first,)), supply=(small, large, with_gpus))
    plan = PlanBuilder(snap, RULES, lambda _: OutMessage("control", b""))
    assert Regions(plan, spec, ()).choose(first, 8) == DEARER
