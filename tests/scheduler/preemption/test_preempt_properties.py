"""Whatever the cluster looks like, a preemption starts the job it was made for."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.changes import JobMove, JobNote
from core.job import S
from core.queueing import class_of
from core.tenants import Tenant
from scheduler.plan_builder import PlanBuilder
from scheduler.preemption.policy import least_of_all_s
from tests.builders import RULES, cluster
from tests.scheduler.preemption.world import HOUR, LOW, NORMAL, URGENT, World

# --- whatever the world looks like ------------------------------------------------------


ROWS = st.tuples(
    st.sampled_from([LOW, NORMAL, 1000, URGENT]),
    st.sampled_from(["a", "b"]),
    st.floats(0, 30 * HOUR),
    st.integers(1, 4),
)


@settings(max_examples=100)
@example(  # one of a higher class was passed by another tenant's, and comes before all others
    [(LOW, "a", 68422.0, 1), (LOW, "b", 12981.0, 1), (NORMAL, "b", 51840.0, 1)],
    [(NORMAL, "a", 0.0, 1), (URGENT, "a", 0.0, 1), (URGENT, "b", 0.0, 1)],
    0.0,
    False,
    False,
)
@given(
    st.lists(ROWS, max_size=8),
    st.lists(ROWS, min_size=1, max_size=5),
    st.floats(0, HOUR),
    st.booleans(),
    st.booleans(),
)
def test_a_preemption_always_starts_the_job_it_was_made_for(
    running: list[tuple[int, str, float, int]],
    waiting: list[tuple[int, str, float, int]],
    saved_s: float,
    shared: bool,
    apart: bool,
) -> None:
    """When the victims have gone, all at once or one by one, it is placed in the same cycle; no
    victim had the better claim."""
    name = "4xl4"
    spec = cluster(name, vm_max=3, share=shared, cpus=48, memory_gb=192)
    world = World(spec, saved_s=saved_s, a=Tenant("a"), b=Tenant("b"))
    for number in range(3):
        world.vm(f"vm-{number}")
    for number, (priority, tenant, ran_s, gpus) in enumerate(running):
        _start_somewhere(world, f"run-{number}", priority, tenant, ran_s, gpus if shared else 4)
    for number, (priority, tenant, waited_s, gpus) in enumerate(waiting):
        world.waits(f"wait-{number}", priority, waited_s, tenant_id=tenant, gpu_count=gpus)
    plan = world.cycle()
    for winner, victims in _receipts(plan):
        mine = class_of(world.jobs[winner].spec.priority)
        assert all(class_of(world.jobs[uid].spec.priority) <= mine for uid in victims)
        for uid in victims:
            tenants = {world.jobs[one].spec.tenant_id for one in (winner, uid)}
            least_s = RULES.queue.least_run_s
            assert _ran_s(plan, uid) >= (least_s if len(tenants) == 1 else least_of_all_s(least_s))
    before = dict(world.jobs)
    for heartbeat in world.preempted() if apart else ():
        world.cycle(heartbeat, after_s=1)
    world.cycle(*world.preempted(), after_s=1)
    started = {u for u, j in world.jobs.items() if j.lease and before[u].lease is None}
    for winner, victims in _receipts(plan):
        assert winner in started, f"{winner} did not start for {victims}"


def _start_somewhere(
    world: World, uid: str, priority: int, tenant: str, ran_s: float, gpus: int
) -> None:
    for one in list(world.vms.values()):
        taken = {
            s
            for j in world.jobs.values()
            if j.lease and j.lease.vm_uid == one.uid
            for s in j.lease.slots
        }
        free = [slot for slot in range(4) if slot not in taken]
        if len(free) >= gpus:
            world.waits(uid, priority, tenant_id=tenant, gpu_count=gpus)
            world.run(uid, one.uid, ran_s, tuple(free[:gpus]))
            return


def _ran_s(plan: PlanBuilder, uid: str) -> float:
    started = plan.jobs[uid].started_at
    assert started is not None
    return (plan.now - started).total_seconds()


def _receipts(plan: PlanBuilder) -> Iterable[tuple[str, list[str]]]:
    for batch in plan.batches:
        for change in batch:
            if isinstance(change, JobNote) and change.entry.event == "room_made":
                yield (
                    change.uid,
                    [
                        move.after.uid
                        for move in batch
                        if isinstance(move, JobMove) and move.after.status is S.PREEMPTING
                    ],
                )
