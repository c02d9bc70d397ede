"""Quotas in a cycle, and what jobs that wait are told."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.changes import Charge, JobMove, Reserve, Snapshot
from core.job import E, Job, S
from core.messages import Control, OutMessage
from core.queueing import HeadsOf, Live, QueueRule
from core.tenants import Quota, Tenant, Usage, held_by, holdings, machines_of
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from scheduler.queue.heads import SPARE, UNSERVED, TenantQueues, heads_for
from tests.builders import RULES, at, cluster, dice, job, snapshot, vm

SPEC = cluster("4xl4", vm_max=4, gpu_memory_gb=24, cpus=48, memory_gb=192)


def encode(_: Control) -> OutMessage:
    return OutMessage("control", b"")


def cycle(seen: Snapshot, vm_max: int = 4) -> tuple[PlanBuilder, dict[str, str]]:
    plan = PlanBuilder(seen, RULES, encode)
    spec = replace(SPEC, vm_max=vm_max)
    around = Circumstances({spec.name: spec}, Silence(()), bus_steady=True)
    reasons = plan_jobs(plan, seen, around, dice())
    return plan, {word.uid: word.why for word in reasons}


def ask(number: int, *events: E, **spec: object) -> Job:
    return job(number, *events, cluster="4xl4", **spec)


def with_tenants(jobs: tuple[Job, ...], *tenants: Tenant) -> Snapshot:
    return replace(snapshot(jobs), tenants={tenant.tenant_id: tenant for tenant in tenants})


def test_quota_holds_back_and_says_so() -> None:
    """The second job is not admitted: asked, quota and use are named; others are not held up."""
    a, b = Tenant("a", quota=Quota(gpus=3)), Tenant("b")
    jobs = (
        ask(1, tenant_id="a", gpu_count=2),
        ask(2, tenant_id="a", gpu_count=2),
        ask(3, tenant_id="b", gpu_count=2),
    )
    plan, reasons = cycle(with_tenants(jobs, a, b))
    states = [plan.jobs[each.uid].status for each in jobs]
    assert states == [S.PROVISIONING, S.QUEUED, S.PROVISIONING]
    words = "quota of tenant a: asks for 2 GPUs, the quota is 3, 2 in use"
    frees = "it starts as its tenant's jobs end, or with a higher quota"
    assert reasons["job-uid-0002"] == f"{words}; {frees}"


def test_every_admission_reserves_in_its_own_unit() -> None:
    """The store can check it: the reservation stands or falls with the step."""
    plan, _ = cycle(with_tenants((ask(1),), Tenant("default")))
    (batch,) = plan.batches
    move, reserve = batch
    assert isinstance(move, JobMove)
    assert isinstance(reserve, Reserve)
    assert (reserve.tenant_id, reserve.cluster, reserve.asks.gpus) == ("default", "4xl4", 1)


def test_a_lowered_quota_takes_places_back_but_no_vm() -> None:
    """What runs goes on; what only waits for a VM goes back, with the reason."""
    runs = ask(1, E.ADMITTED, E.PLACED, E.STARTED, tenant_id="a")
    waits = ask(2, E.ADMITTED, tenant_id="a")
    seen = replace(
        snapshot((runs, waits), (vm("vm-1", cluster="4xl4", leases=("lease-1",)),)),
        tenants={"a": Tenant("a", quota=Quota(jobs=1))},
    )
    plan, _ = cycle(seen)
    assert plan.jobs[runs.uid].status is S.RUNNING
    back = plan.jobs[waits.uid]
    assert back.status is S.QUEUED
    assert back.reason.startswith("quota of tenant a: asks for 1 jobs at once, the quota is 1")


def test_an_urgent_job_takes_the_quota_of_one_that_only_waits() -> None:
    """Within a tenant at its quota the better job gets the place; the other gives it up first."""
    waits, urgent = ask(1, E.ADMITTED, tenant_id="a"), ask(2, tenant_id="a", priority=2000)
    plan, _ = cycle(with_tenants((waits, urgent), Tenant("a", quota=Quota(jobs=1))))
    assert plan.jobs[urgent.uid].status is S.PROVISIONING
    moved = [batch[0].after.uid for batch in plan.batches if isinstance(batch[0], JobMove)]
    assert moved == [waits.uid, urgent.uid]


def test_the_rule_that_blocks_is_named() -> None:
    """Class, share, or jobs of the same tenant: each with what would change it."""
    tenants = (Tenant("a"), Tenant("b"))
    first = ask(1, tenant_id="a")
    _, reasons = cycle(with_tenants((first, ask(2, tenant_id="a")), *tenants), vm_max=1)
    assert "other jobs of tenant a are due before it" in reasons["job-uid-0002"]
    runs = ask(3, E.ADMITTED, E.PLACED, E.STARTED, tenant_id="b")
    seen = with_tenants((runs, first, ask(4, tenant_id="b")), *tenants)
    busy = vm("vm-3", cluster="4xl4", leases=("lease-3",))
    _, reasons = cycle(replace(seen, vms=(busy,)), vm_max=2)
    assert "tenants that have used less of their share than b are ahead" in reasons["job-uid-0004"]
    _, reasons = cycle(with_tenants((first, ask(5, priority=100)), *tenants), vm_max=1)
    assert "jobs of class normal are ahead of low" in reasons["job-uid-0005"]


def test_a_lease_that_ends_charges_its_tenant() -> None:
    """GPU-seconds since it began to run, in the unit of the step; one that never ran is free."""
    ran = ask(1, E.ADMITTED, E.PLACED, E.STARTED, tenant_id="a", gpu_count=2)
    seen = snapshot((ran,), now=at(101))
    plan, _ = cycle(seen)  # its VM is not there any more
    charges = [c for batch in plan.batches for c in batch if isinstance(c, Charge)]
    assert charges == [Charge("a", 200.0, at(101), RULES.queue.half_life_s)]
    assigned = ask(2, E.ADMITTED, E.PLACED)
    plan, _ = cycle(snapshot((assigned,), now=at(101)))
    assert not [c for batch in plan.batches for c in batch if isinstance(c, Charge)]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.booleans()), max_size=12),
    st.integers(0, 8),
    st.integers(0, 4),
    st.integers(0, 200),
)
def test_no_turn_admits_beyond_a_quota(
    rows: list[tuple[str, int, bool]], gpus: int, jobs: int, memory_gb: int
) -> None:
    """Whatever waits and whatever the quota: what is held after the cycle is within it."""
    quota = Quota(gpus=gpus, jobs=jobs, gpu_memory_gb=memory_gb, gpus_by_type={"l4": 6})
    tenant = Tenant("a", quota=quota)
    waiting = tuple(
        ask(n, *((E.ADMITTED,) if placed else ()), tenant_id=t, gpu_count=g)
        for n, (t, g, placed) in enumerate(rows)
    )
    plan, _ = cycle(with_tenants(waiting, tenant, Tenant("b")), vm_max=8)
    held = holdings(plan.jobs.values()).get("a", {})
    used = held_by(held, machines_of([SPEC]))
    assert all(used.get(name, 0) <= limit for name, limit in quota.limits.items())


def test_a_turn_asks_for_what_it_can_use() -> None:
    """Tenants by share; tenants that may start nothing on such a machine are left out; room and
    some spare; clusters that are gone are looked at as well."""
    h100 = cluster("1xh100", vm_max=3, gpu_memory_gb=80)
    fifo = cluster("1xl4", vm_max=0, queue=QueueRule.FIFO)
    clusters = {spec.name: spec for spec in (SPEC, h100, fifo)}
    tenants = {
        "had": Tenant("had"),
        "new": Tenant("new"),
        "full": Tenant("full", quota=Quota(jobs=1)),
        "no-l4": Tenant("no-l4", quota=Quota(gpus_by_type={"l4": 0})),
        "poor": Tenant("poor"),
    }
    runs = ask(1, E.ADMITTED, E.PLACED, E.STARTED, tenant_id="full")
    live = Live(at(9), [runs], tenants, {"had": Usage(1e6, at(0))}, ["1xold", "4xl4"])
    question = heads_for(clusters, {"poor"}, RULES.queue, 3600.0, TenantQueues())
    asked = {heads.cluster: heads for heads in question(live)}
    assert asked["4xl4"].tenants == ("new", "had")
    assert asked["1xh100"].tenants == ("new", "no-l4", "had")
    assert (asked["4xl4"].limit, asked["1xh100"].limit) == (3 + SPARE, 3 + SPARE)
    assert (asked["4xl4"].room, asked["1xl4"].room) == (3, 0)
    assert (asked["1xl4"].rule, asked["1xl4"].limit) == (QueueRule.FIFO, UNSERVED)
    assert asked["1xold"] == HeadsOf("1xold", UNSERVED)


def test_gpu_memory_that_is_left_is_asked_for() -> None:
    """A job may ask for less GPU memory than a GPU has: its tenant is left out only when nothing is
    left. VMs without GPUs have no part in it."""
    clusters = {spec.name: spec for spec in (SPEC, cluster("0xcpu", cpus=4, memory_gb=15))}
    tenants = {
        name: Tenant(name, quota=Quota(gpu_memory_gb=memory_gb))
        for name, memory_gb in (("some", 8), ("none", 0))
    }
    live = Live(at(9), [], tenants, {}, ["4xl4"])
    question = heads_for(clusters, (), RULES.queue, 3600.0, TenantQueues())
    asked = {heads.cluster: set(heads.tenants) for heads in question(live)}
    assert asked == {"4xl4": {"some"}, "0xcpu": {"some", "none"}}
    waiting = ask(1, tenant_id="some", gpu_memory_mb=4096)
    plan, _ = cycle(with_tenants((waiting,), tenants["some"]), vm_max=8)
    assert plan.jobs[waiting.uid].status is S.PROVISIONING
