"""Gangs that find capacity for some of their members only."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

from core.changes import JobMove
from core.job import S
from core.job_fields import JobSpec
from core.job_steps import new_job
from core.region_blocks import BlockKind, RegionBlock
from orchestrator.planning.plan_input import demand_of
from scheduler.placement.gang import PAUSE_S
from tests.builders import NOW, REGIONS, RULES, vm
from tests.scheduler.placement.gangs import V, World, gang, idle, obey

HOLD_S = RULES.timers.gang_hold_s


# --- partial capacity -------------------------------------------------------------------


def test_partial_capacity_is_let_go_at_the_deadline() -> None:
    """A gang of 32 of which one VM never boots: released at the deadline, its VMs serve others,
    and its next try is elsewhere, after a pause."""
    stuck = vm("stuck", V.BOOTING)
    small = new_job("small", JobSpec("small", command=("true",)), "1xl4", NOW)
    world = World([*gang("g", 32, NOW - timedelta(hours=9)), small], [*idle(31), stuck], 40)
    world.cycle()
    assert world.statuses("g") == [S.PROVISIONING] * 32
    world.cycle(after_s=HOLD_S - 1)
    assert (world.statuses("g"), world.jobs["small"].status) == (
        [S.PROVISIONING] * 32,
        S.PROVISIONING,
    )
    plan = world.cycle(after_s=1)
    assert world.statuses("g") == [S.QUEUED] * 32
    assert len([c for c in plan.batches[-1] if isinstance(c, JobMove)]) == 32
    assert (
        world.jobs["g-uid-0"].reason == "32 VMs in us-central1 did not come together within 600 s"
    )
    world.cycle(after_s=1)
    assert world.jobs["small"].status is S.ASSIGNED
    assert world.statuses("g") == [S.QUEUED] * 32
    world.cycle(after_s=PAUSE_S)
    assert world.statuses("g") == [S.PROVISIONING] * 32
    assert {j.gang_region for j in world.jobs.values() if j.gang} == {REGIONS[1]}


def test_a_region_without_capacity_is_left_at_once() -> None:
    """There is no sense in waiting where nothing is to be had while another region may have it."""
    block = RegionBlock(
        *(REGIONS[0], "", "g2-standard-4", False, BlockKind.STOCKOUT),
        *(NOW, NOW, NOW + timedelta(minutes=5), 1, "no capacity"),
    )
    world = World(gang("g", 3), idle(1))
    world.cycle()
    assert {j.gang_region for j in world.jobs.values()} == {REGIONS[0]}
    world.blocks = (block,)
    world.cycle(after_s=5)
    assert world.jobs["g-uid-0"].reason == "3 VMs in us-central1 did not come together (stockout)"
    world.cycle(after_s=PAUSE_S)
    assert {(j.status, j.gang_region) for j in world.jobs.values()} == {
        (S.PROVISIONING, REGIONS[1])
    }


class Supply:
    """VMs for the VM requests of a world: few in each region, slow, and some never boot."""

    BOOT_S, GIVE_UP_S, IDLE_S = 40.0, 400.0, 60.0

    def __init__(self, world: World, room: int, seed: int) -> None:
        self._world, self._room, self._dice = world, room, random.Random(seed)
        self._stuck: set[str] = set()
        self._made = 0

    def step(self) -> None:
        world, now = self._world, self._world.now
        for one in list(world.vms.values()):
            age_s = (now - one.state_since).total_seconds()
            if one.state is V.BOOTING and age_s >= self.GIVE_UP_S:
                del world.vms[one.uid]
            elif one.state is V.BOOTING and age_s >= self.BOOT_S and one.uid not in self._stuck:
                facts = {"boot_nonce": "nonce", "idle_since": now, "state_since": now}
                world.vms[one.uid] = replace(one, state=V.READY, version=9, **facts)  # type: ignore[arg-type]
            elif (
                one.idle and one.idle_since and (now - one.idle_since).total_seconds() > self.IDLE_S
            ):
                del world.vms[one.uid]
        there = Counter(one.region for one in world.vms.values())
        demand = demand_of("1xl4", world.jobs.values())
        for region, wanted in Counter(w.regions[0] for w in demand.requests if w.regions).items():
            free = [o for o in world.vms.values() if o.region == region and not o.leases]
            for _ in range(
                min(wanted - len(free), self._room - there[region], world.vm_max - len(world.vms))
            ):
                self._made += 1
                name = f"{region}-made-{self._made}"
                world.vms[f"uid-{name}"] = vm(name, V.BOOTING, region=region, state_since=now)
                if self._dice.random() < 0.05:
                    self._stuck.add(f"uid-{name}")


def test_a_hundred_gangs_that_compete_all_end() -> None:
    """Scarce regions, VMs that never boot: a gang that holds in vain lets go, so all gangs run."""
    chance = random.Random(7)
    sizes = [chance.randint(2, 6) for _ in range(100)]
    jobs = [job for n, size in enumerate(sizes) for job in gang(f"g{n}", size)]
    world = World(jobs, vm_max=18)
    supply = Supply(world, room=7, seed=3)
    for _ in range(4000):
        world.cycle(*obey(world, chance), after_s=10)
        supply.step()
        if all(world.jobs[f"g{n}-uid-0"].status.final for n in range(100)):
            break
    ends = Counter(world.jobs[f"g{n}-uid-0"].status for n in range(100))
    assert ends == {S.SUCCEEDED: 100}, ends
