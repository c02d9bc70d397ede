"""Several jobs on one VM: who gets which GPUs."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from core.changes import Snapshot
from core.cluster import ClusterSpec
from core.health import BadGpu, GpuFault, VmHealth
from core.job import E, Job, JobEvent, Lease, S
from core.job_steps import EventFacts, advance, new_job
from core.messages import Control, OutMessage, StartJob
from core.vm import Vm, VmState
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.placement.slots import Room, Slots
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, RULES, at, cluster, dice, job, snapshot, vm

V = VmState
SHARED = cluster("4xl4", vm_max=3, share=True, cpus=48, memory_gb=192)
HOT = BadGpu(1, GpuFault.HOT, "is hot (91 °C)", NOW)


def planned(
    seen: Snapshot, spec: ClusterSpec = SHARED, seed: int = 1
) -> tuple[PlanBuilder, list[StartJob]]:
    told: list[Control] = []

    def encode(message: Control) -> OutMessage:
        told.append(message)
        return OutMessage("control", b"")

    plan = PlanBuilder(seen, RULES, encode)
    plan_jobs(plan, seen, Circumstances({spec.name: spec}, Silence(()), True), dice(seed))
    return plan, [message for message in told if isinstance(message, StartJob)]


def four(number: int, gpus: int = 1, **spec: object) -> Job:
    return job(number, cluster="4xl4", gpu_count=gpus, **spec)


def on(place: str, number: int, *slots: int, **spec: object) -> Job:
    """A job that runs on these GPUs of a VM."""
    made = job(number, E.ADMITTED, cluster="4xl4", gpu_count=len(slots), **spec)
    lease = Lease(f"lease-{number}", place, f"uid-{place}", "us-central1", "us-central1-a", slots)
    placed = advance(made, E.PLACED, at(number), RULES, facts=EventFacts(lease=lease))
    return advance(placed, E.STARTED, at(number), RULES)


def with_jobs(place: str, *jobs: Job, **facts: object) -> Vm:
    leases = tuple(j.lease.lease_id for j in jobs if j.lease)
    made = vm(place, cluster="4xl4", leases=leases)
    return replace(made, **facts)  # type: ignore[arg-type]


def slots_of(plan: PlanBuilder, *numbers: int) -> list[tuple[int, ...]]:
    jobs = [plan.jobs[f"job-uid-{number:04d}"] for number in numbers]
    return [j.lease.slots if j.lease else () for j in jobs]


def test_four_jobs_share_a_vm_each_with_its_own_gpu() -> None:
    """One cycle, one VM, GPUs 0 to 3."""
    plan, starts = planned(snapshot(tuple(four(n) for n in range(1, 6)), (with_jobs("vm-1"),)))
    assert [start.slots for start in starts] == [(0,), (1,), (2,), (3,)]
    assert plan.jobs["job-uid-0005"].status is S.PROVISIONING
    assert len(plan.vms["uid-vm-1"].leases) == 4


def test_a_vm_is_one_tenants_unless_the_operator_says_otherwise() -> None:
    """The second tenant waits for a VM of its own while the first has jobs there."""
    jobs = (on("vm-1", 1, 0), four(2, tenant_id="other"), four(3))
    seen = snapshot(jobs, (with_jobs("vm-1", jobs[0]),))
    plan, starts = planned(seen)
    assert [start.spec.job_id for start in starts] == [jobs[2].spec.job_id]
    assert plan.jobs["job-uid-0002"].status is S.PROVISIONING, "its VM is asked for"
    _, both = planned(seen, replace(SHARED, share_between_tenants=True))
    assert len(both) == 2


def test_room_is_counted_by_tenant() -> None:
    """Holes of a VM with jobs are their tenant's; a job that goes gives the whole VM to anybody."""
    jobs = (on("vm-1", 1, 0),)
    seen = snapshot(jobs, (with_jobs("vm-1", *jobs),))
    plan = PlanBuilder(seen, RULES, lambda _: OutMessage("control", b""))
    room = Room(plan, replace(SHARED, vm_max=1), 1)
    mine, foreign = four(2).spec, four(3, tenant_id="other").spec
    assert (room.fits(mine), room.fits(foreign)) == (True, False)
    room.free_up(1, 3, mine.tenant_id)
    assert room.take(foreign)
    assert not room.fits(mine)


def test_exclusive_vm_takes_one_job() -> None:
    """The default: the rest of the VM stays free."""
    plan, starts = planned(
        snapshot((four(1), four(2)), (with_jobs("vm-1"),)), replace(SHARED, share=False)
    )
    assert [start.slots for start in starts] == [(0,)]
    assert len(plan.vms["uid-vm-1"].leases) == 1


def test_fullest_vm_that_fits_comes_first() -> None:
    """The hole of four stays whole for a job that needs it."""
    one, two = on("vm-1", 1, 0), on("vm-2", 2, 0, 2)
    vms = (with_jobs("vm-0"), with_jobs("vm-1", one), with_jobs("vm-2", two))
    plan, _ = planned(snapshot((one, two, four(3, 2), four(4, 4)), vms))
    third, fourth = (plan.jobs[f"job-uid-000{n}"].lease for n in (3, 4))
    assert third is not None
    assert (third.vm_name, third.slots) == ("vm-2", (1, 3))
    assert fourth is not None
    assert fourth.vm_name == "vm-0"


def test_what_jobs_ask_of_cpu_and_memory_adds_up() -> None:
    """GPUs that nobody can feed stay free."""
    first = on("vm-1", 1, 0, cpu_cores=40)
    plan, _ = planned(
        snapshot((first, four(2, cpu_cores=10), four(3)), (with_jobs("vm-1", first),))
    )
    assert slots_of(plan, 2, 3) == [(), (1,)]
    eater = on("vm-1", 1, 0, memory_mb=191 * 1024)
    plan, _ = planned(snapshot((eater, four(2, memory_mb=2048)), (with_jobs("vm-1", eater),)))
    assert slots_of(plan, 2) == [()]


def test_bad_gpu_gets_no_job() -> None:
    """Hot now: its neighbours work on."""
    ill = with_jobs("vm-1", health=VmHealth(gpus=(HOT,)))
    plan, _ = planned(snapshot((four(1), four(2), four(3), four(4)), (ill,)))
    assert slots_of(plan, 1, 2, 3, 4) == [(0,), (2,), (3,), ()]


def test_vm_that_leaves_takes_no_neighbour() -> None:
    """Draining means that nothing new comes, also where GPUs are free."""
    first = on("vm-1", 1, 0)
    leaving = with_jobs("vm-1", first, state=V.DRAINING)
    plan, starts = planned(snapshot((first, four(2)), (leaving,)))
    assert starts == []
    assert plan.jobs["job-uid-0002"].status is S.PROVISIONING


def test_room_counts_holes_not_vms() -> None:
    """A limit of one VM with four GPUs admits four single jobs, and no fifth."""
    spec = replace(SHARED, vm_max=1)
    room = Room(PlanBuilder(snapshot(), RULES, lambda _: OutMessage("", b"")), spec, 0)
    assert [room.take(four(n).spec) for n in range(1, 6)] == [True, True, True, True, False]
    half = Room(PlanBuilder(snapshot(), RULES, lambda _: OutMessage("", b"")), spec, 0)
    assert [half.take(four(n, 3).spec) for n in (1, 2)] == [True, False]


def test_lease_whose_job_is_not_in_the_snapshot_closes_its_vm() -> None:
    """Nobody knows which GPUs it holds."""
    odd = vm("vm-1", cluster="4xl4", leases=("lease-x",))
    plan = PlanBuilder(snapshot((), (odd,)), RULES, lambda _: OutMessage("", b""))
    assert Slots(plan, SHARED).best(four(1).spec) is None


def test_neighbours_of_a_hung_job_are_left_alone() -> None:
    """Its VM takes nothing new and goes when it is empty; the grace of one job is not paid by
    the others."""
    hung = advance(on("vm-1", 1, 0), E.STOP_ASKED, at(1), RULES, reason="user")
    other = on("vm-1", 2, 1)
    late = replace(snapshot((hung, other), (with_jobs("vm-1", hung, other),)), now=at(10_000))
    plan, _ = planned(late)
    assert plan.jobs[hung.uid].status is S.CANCELLED
    assert plan.jobs[other.uid].status is S.RUNNING
    assert plan.vms["uid-vm-1"].state is V.DRAINING


def test_worker_that_does_not_claim_one_of_two_is_asked_before_both_are_given_up() -> None:
    """First a stop for the one; without an answer the VM goes."""
    lost = placed(1, "vm-1", (0,))
    other = on("vm-1", 2, 1)
    both = (with_jobs("vm-1", lost, other),)
    first, _ = planned(replace(snapshot((lost, other), both), now=at(100)))
    assert first.vms["uid-vm-1"].state is V.DRAINING
    assert first.jobs[other.uid].status is S.RUNNING
    after = (first.vms["uid-vm-1"],)
    patient, _ = planned(replace(snapshot((lost, other), after), now=at(150)))
    assert patient.batches == []
    last, _ = planned(replace(snapshot((lost, other), after), now=at(300)))
    assert last.vms["uid-vm-1"].state is V.DELETING


def placed(number: int, place: str, slots: tuple[int, ...]) -> Job:
    made = new_job(f"job-uid-{number:04d}", four(number).spec, "4xl4", at(number))
    lease = Lease(f"lease-{number}", place, f"uid-{place}", "us-central1", "us-central1-a", slots)
    admitted = advance(made, E.ADMITTED, at(number), RULES)
    return advance(admitted, E.PLACED, at(number), RULES, facts=EventFacts(lease=lease))


ENDS = (E.EXITED_OK, E.VM_LOST, E.RECLAIMED)


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=14),
    st.lists(st.tuples(st.integers(0, 13), st.sampled_from(ENDS)), max_size=6),
)
def test_no_gpu_is_ever_given_twice(sizes: list[int], ends: list[tuple[int, JobEvent]]) -> None:
    """Whatever comes and goes between cycles; and no VM has jobs of two tenants."""
    vms = tuple(with_jobs(f"vm-{n}") for n in range(3))
    jobs = tuple(
        four(number, gpus, tenant_id=f"t{number % 3}") for number, gpus in enumerate(sizes, start=1)
    )
    seen = snapshot(jobs, vms)
    for seed, (place, event) in enumerate([*ends, (99, E.EXITED_OK)]):
        plan, _ = planned(seen, seed=seed)
        check(plan)
        current = list(plan.jobs.values())
        if place < len(current) and current[place].lease is not None:
            started = plan.step(current[place], E.STARTED, "runs")
            plan.step(started, event, "ends")
        check(plan)
        live = tuple(j for j in plan.jobs.values() if not j.status.final)
        seen = snapshot(live, tuple(plan.vms.values()))


def check(plan: PlanBuilder) -> None:
    for on_it in plan.vms.values():
        leases = [j.lease for j in plan.jobs.values() if j.lease and j.lease.vm_uid == on_it.uid]
        assert sorted(lease.lease_id for lease in leases) == sorted(on_it.leases)
        slots = [slot for lease in leases for slot in lease.slots]
        assert len(slots) == len(set(slots)) <= 4
        assert all(0 <= slot < 4 for slot in slots)
        on = [j for j in plan.jobs.values() if j.lease and j.lease.vm_uid == on_it.uid]
        assert len({j.spec.tenant_id for j in on}) <= 1
