"""What the simulator does to machines in the moments that it looks for."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from core.job import JobStatus, Lease
from core.job_fields import JobSpec
from core.job_steps import new_job
from sim.virtual.loop import EPOCH
from sim.virtual.rare_moments import RareMoments
from sim.virtual.run import SimulationPlan, SimulationRun
from sim.virtual.setting import PHYSICS, REGIONS


class Always(random.Random):
    """Dice that say yes."""

    def random(self) -> float:
        return 0.0


def test_vm_that_is_deleted_at_that_very_moment_is_not_taken() -> None:
    """The cloud's own turn comes after the look, at the same second: the VM counts as gone."""
    run = SimulationRun(SimulationPlan(seed=1, jobs=1))
    group = run.settings.names.mig("1xl4", REGIONS[0])
    name = f"{run.settings.names.vm_base('1xl4', REGIONS[0])}-test"
    physics, looks = run.cloud.cloud, 0

    def over() -> bool:
        nonlocal looks
        looks += 1
        return looks > 1

    async def play() -> None:
        run._make_infrastructure()
        physics.create_instances(REGIONS[0], group, [name], None, run.loop.time())
        run.cloud.settle()
        await asyncio.sleep(120)
        (worker,) = run.fleet.workers()
        assert worker.info.name == name
        lease = Lease("lease", name, "vm", REGIONS[0], worker.info.zone, (0,))
        job = new_job("job", JobSpec("job", "0"), "1xl4", EPOCH)
        leaving = replace(job, status=JobStatus.PREEMPTING, lease=lease, attempt=1)
        run.store.tables.active.jobs["job"] = leaving
        moments = RareMoments(run.ground, run.fleet, Always(1), over)
        run.loop.later(PHYSICS.delete_s, moments.look)
        physics.delete_instance(worker.info.zone, name, None, run.loop.time())
        run.cloud.settle()
        await asyncio.sleep(PHYSICS.delete_s + 5)

    run.loop.run_until_complete(play())
    run.loop.dispose()
    assert looks == 2
    assert not run.fleet.workers()
    assert not run.checkers.violations
    assert not run.trace.faults["leaving_vm_taken"]
