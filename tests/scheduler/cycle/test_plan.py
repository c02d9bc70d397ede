"""Who runs next, on what, and why the others wait."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.changes import JobMove, PendingReason, Send, Snapshot, VmMove
from core.job import E, Job, S
from core.messages import Control, OutMessage, StartJob, StopJob
from core.region_blocks import BlockKind, RegionBlock
from core.vm import Vm, VmState
from scheduler.cycle.plan import Circumstances, plan_jobs
from scheduler.cycle.silence import Silence
from scheduler.plan_builder import PlanBuilder
from tests.builders import NOW, REGIONS, RULES, at, cluster, dice, job, snapshot, vm

V = VmState


class Cycle:
    """One planned cycle, with the messages kept as values."""

    def __init__(
        self,
        seen: Snapshot,
        *,
        silence: Silence = Silence(()),  # noqa: B008  # frozen
        steady: bool = True,
        vm_max: int = 4,
    ) -> None:
        self.told: list[Control] = []
        self.plan = PlanBuilder(seen, RULES, self._encode)
        around = Circumstances({"1xl4": cluster(vm_max=vm_max)}, silence, steady)
        self.reasons = {w.uid: w for w in plan_jobs(self.plan, seen, around, dice())}

    def _encode(self, message: Control) -> OutMessage:
        self.told.append(message)
        return OutMessage("control", b"")

    def job(self, number: int) -> Job:
        return self.plan.jobs[f"job-uid-{number:04d}"]

    def vm(self, name: str) -> Vm:
        return self.plan.vms[f"uid-{name}"]


def running(number: int, **facts: object) -> tuple[Job, Vm]:
    """A job that runs on its VM."""
    on = vm(f"vm-{number}", leases=(f"lease-{number}",), idle_since=None)
    held = job(number, E.ADMITTED, E.PLACED, E.STARTED)
    return held, replace(on, **facts)  # type: ignore[arg-type]


def test_job_goes_from_queue_to_idle_vm_in_one_turn() -> None:
    """Admitted, placed and told, each step with its atomic batch."""
    cycle = Cycle(snapshot((job(1),), (vm("vm-9"),)))
    placed = cycle.job(1)
    assert (placed.status, placed.attempt) == (S.ASSIGNED, 1)
    assert placed.lease is not None
    assert cycle.vm("vm-9").leases == (placed.lease.lease_id,)
    (start,) = cycle.told
    assert isinstance(start, StartJob)
    assert (start.vm_name, start.attempt, start.boot_nonce) == ("vm-9", 1, "nonce")
    last = cycle.plan.batches[-1]
    assert [type(change) for change in last] == [JobMove, VmMove, Send]


def test_without_a_vm_the_job_becomes_demand() -> None:
    """PROVISIONING, and it says what it waits for."""
    cycle = Cycle(snapshot((job(1),)))
    assert cycle.job(1).status is S.PROVISIONING
    assert cycle.reasons["job-uid-0001"] == PendingReason("job-uid-0001", "waits for a VM")


def test_higher_priority_takes_the_vm_that_came() -> None:
    """Admission binds nobody to a VM."""
    early = job(1, E.ADMITTED)
    urgent = job(2, priority=2000)
    cycle = Cycle(snapshot((early, urgent), (vm("vm-9"),)))
    assert cycle.job(2).status is S.ASSIGNED
    assert cycle.job(1).status is S.PROVISIONING


def test_displaced_job_goes_back_to_the_queue() -> None:
    """With room for one, the better one is the demand."""
    early = job(1, E.ADMITTED)
    cycle = Cycle(snapshot((early, job(2, priority=2000))), vm_max=1)
    assert (cycle.job(1).status, cycle.job(2).status) == (S.QUEUED, S.PROVISIONING)


def test_beyond_the_limit_jobs_stay_queued_and_say_so() -> None:
    """The rule, in words."""
    cycle = Cycle(snapshot((job(1), job(2))), vm_max=1)
    assert cycle.job(2).status is S.QUEUED
    why = cycle.reasons["job-uid-0002"]
    assert "limit of 1" in why.why


def test_job_of_a_vm_that_is_off_goes_back_at_once() -> None:
    """The cloud shows it off, so no boot of it is alive: nobody waits for silence."""
    held, on = running(1)
    off = replace(on, state=V.DELETING, reason="found terminated", boot_nonce="")
    cycle = Cycle(snapshot((held,), (off,)))
    assert cycle.job(1).losses == 1
    assert cycle.job(1).status is S.PROVISIONING
    assert cycle.vm("vm-1").leases == ()


def test_job_of_a_vm_that_is_only_being_deleted_stays_there() -> None:
    """Its worker may still compute: another VM would compute the same job beside it."""
    held, on = running(1)
    cycle = Cycle(snapshot((held,), (replace(on, state=V.DELETING), vm("vm-2"))))
    assert cycle.job(1).status is S.RUNNING
    assert cycle.plan.batches == []


def test_job_of_a_deleted_vm_that_falls_silent_goes_back() -> None:
    """Its worker has frozen the job, whether or not the cloud does as asked."""
    held, on = running(1, state=V.DELETING, last_beat_at=at(-500))
    assert Cycle(snapshot((held,), (on,)), silence=Silence((on,))).job(1).losses == 1


def test_start_on_its_way_to_a_silent_vm_keeps_its_job_until_the_vm_is_gone() -> None:
    """The VM may come back and take the start: only what ran has been frozen."""
    asked = job(1, E.ADMITTED, E.PLACED)
    on = vm("vm-1", leases=("lease-1",), idle_since=None, last_beat_at=at(-500))
    cycle = Cycle(snapshot((asked,), (on, vm("vm-2"))), silence=Silence((on,)))
    assert cycle.vm("vm-1").state is V.DELETING
    assert cycle.job(1).status is S.ASSIGNED
    gone = replace(on, state=V.GONE)
    assert Cycle(snapshot((asked,), (gone,))).job(1).losses == 1


def test_job_of_a_vm_that_is_not_there_any_more_goes_back() -> None:
    """GONE rows without leases are not in the snapshot."""
    held, _ = running(1)
    assert Cycle(snapshot((held,))).job(1).losses == 1


def test_spot_vm_taken_costs_the_preemption_budget_only() -> None:
    """The user's and the infra budgets are untouched."""
    held, on = running(1)
    off = replace(on, state=V.DELETING, taken=True, boot_nonce="")
    after = Cycle(snapshot((held,), (off,))).job(1)
    assert (after.preemptions, after.losses, after.failures) == (1, 0, 0)


def test_silent_vm_gives_its_job_back_and_is_deleted() -> None:
    """The job is queued again, the VM removed by name."""
    held, on = running(1, last_beat_at=at(-500))
    cycle = Cycle(snapshot((held,), (on,)), silence=Silence((on,)))
    assert cycle.vm("vm-1").state is V.DELETING
    assert cycle.job(1).losses == 1


def test_max_runtime_sends_a_stop() -> None:
    """STOPPING first; the worker gets its grace."""
    held, on = running(1)
    cycle = Cycle(snapshot((replace(held, deadline_at=at(-1)),), (on,)))
    assert cycle.job(1).status is S.STOPPING
    (stop,) = cycle.told
    assert isinstance(stop, StopJob)
    assert stop.lease_id == "lease-1"


def test_worker_that_does_not_stop_loses_its_vm() -> None:
    """CANCELLED after the grace, and the VM is not trusted any more."""
    held, on = running(1)
    stopping = replace(held, status=S.STOPPING, deadline_at=at(-1))
    cycle = Cycle(snapshot((stopping,), (on,)))
    assert cycle.job(1).status is S.CANCELLED
    assert cycle.vm("vm-1").state is V.DELETING


def test_claim_clock_stands_still_while_the_bus_is_away() -> None:
    """The worker's word could not have reached us."""
    asked = replace(job(1, E.ADMITTED, E.PLACED), deadline_at=at(-1))
    on = vm("vm-1", leases=("lease-1",), idle_since=None)
    assert Cycle(snapshot((asked,), (on,)), steady=False).job(1).status is S.ASSIGNED
    late = Cycle(snapshot((asked,), (on,)), steady=True)
    assert late.vm("vm-1").state is V.DELETING


def test_worker_that_does_not_claim_is_given_up_before_its_job_goes_back() -> None:
    """Told to stop and deleted; the job waits until nothing can run there, and pays one loss."""
    asked = replace(job(1, E.ADMITTED, E.PLACED), deadline_at=at(-1))
    on = vm("vm-1", leases=("lease-1",), idle_since=None)
    given_up = Cycle(snapshot((asked,), (on, vm("vm-2"))))
    assert given_up.job(1).status is S.ASSIGNED
    (stop,) = given_up.told
    assert isinstance(stop, StopJob)
    again = Cycle(snapshot((asked,), (given_up.vm("vm-1"),)))
    assert (again.told, again.job(1).status) == ([], S.ASSIGNED)
    off = replace(given_up.vm("vm-1"), boot_nonce="")
    back = Cycle(snapshot((asked,), (off,)))
    (move,) = [c for batch in back.plan.batches for c in batch if isinstance(c, JobMove)][:1]
    assert move.entries[0].event == E.CLAIM_TIMEOUT
    assert back.job(1).losses == 1


def test_queue_timeout_fails_the_job() -> None:
    """With the number in the reason."""
    late = replace(job(1, queue_timeout_s=5.0), deadline_at=at(-1))
    after = Cycle(snapshot((late,))).job(1)
    assert (after.status, after.reason) == (S.FAILED, "did not start within 5 s")


def test_regions_of_a_job_are_kept() -> None:
    """An idle VM elsewhere does not fit."""
    cycle = Cycle(snapshot((job(1, regions=("us-east1",)),), (vm("vm-9"),)))
    assert cycle.job(1).status is S.PROVISIONING


def test_why_names_the_blocked_region_and_its_end() -> None:
    """The same words everywhere."""
    block = RegionBlock(
        "us-east1", "", "g2-standard-4", False, BlockKind.STOCKOUT, NOW, NOW, at(300), 1, "x"
    )
    cycle = Cycle(snapshot((job(1),), (vm("vm-2", V.BOOTING),), (block,)))
    assert cycle.reasons["job-uid-0001"].why == (
        "waits for a VM in us-central1; us-east1 stockout until 12:05:00 UTC"
    )


def test_why_speaks_of_the_jobs_own_regions_only() -> None:
    """What blocks elsewhere does not matter to it."""
    block = RegionBlock(
        "us-east1", "", "g2-standard-4", False, BlockKind.QUOTA, NOW, NOW, at(300), 1, "x"
    )
    pinned, free = job(1, regions=("us-central1",)), job(2)
    cycle = Cycle(snapshot((pinned, free), (), (block,)))
    assert cycle.reasons["job-uid-0001"].why == "waits for a VM"
    assert "us-east1 quota" in cycle.reasons["job-uid-0002"].why
    denied = Cycle(snapshot((job(1, regions_denied=("us-east1",)),), (), (block,)))
    assert denied.reasons["job-uid-0001"].why == "waits for a VM"
    stuck = Cycle(snapshot((job(1, regions=("us-east1",)),), (), (block,)))
    assert stuck.reasons["job-uid-0001"].why == (
        "waits for a VM; us-east1 quota until 12:05:00 UTC; then it is tried again, or it allows "
        "other regions"
    )


def test_why_names_the_price_cap_that_no_region_is_within() -> None:
    """With the cheapest price; whether the job has a place in the queue or not, and alone its own
    regions count."""
    capped = job(1, max_usd_per_hour=0.5)
    ahead, on = running(9)
    words = (
        "is within its price cap of $0.5 per VM and hour; the cheapest is us-central1 at $1: it "
        "starts when a price falls to its cap, or submitted again with a higher one"
    )
    assert Cycle(snapshot((capped,))).reasons["job-uid-0001"].why == f"no region {words}"
    full = Cycle(snapshot((ahead, capped), (on,)), vm_max=1)
    assert full.job(1).status is S.QUEUED
    assert full.reasons["job-uid-0001"].why == f"no region {words}"
    east = job(1, max_usd_per_hour=1.5, regions=("us-east1",))
    why = Cycle(snapshot((east,))).reasons["job-uid-0001"].why
    assert why.startswith("none of its regions is within its price cap of $1.5 ")
    assert "the cheapest is us-east1 at $2:" in why


def test_job_that_no_price_is_low_enough_for_holds_no_place() -> None:
    """Prices rose after it was let in: it goes back, and the next one has the cluster's last VM."""
    capped, other = job(1, E.ADMITTED, max_usd_per_hour=0.5), job(2)
    cycle = Cycle(snapshot((capped, other), (vm("vm-9"),)), vm_max=1)
    assert (cycle.job(1).status, cycle.job(2).status) == (S.QUEUED, S.ASSIGNED)
    assert cycle.job(1).reason.startswith("no region is within its price cap of $0.5 ")


def test_job_keeps_its_place_for_a_vm_that_was_bought_when_prices_were_lower() -> None:
    """A VM costs what it was made for."""
    booting = vm("vm-9", V.BOOTING, usd_per_hour=0.4)
    cycle = Cycle(snapshot((job(1, E.ADMITTED, max_usd_per_hour=0.5),), (booting,)), vm_max=1)
    assert cycle.job(1).status is S.PROVISIONING


def test_why_names_the_regions_that_the_cap_rules_out() -> None:
    """While those within it are blocked; with one of them open the cap is no reason to wait, and
    what blocks above the cap does not matter."""
    first, second, third = (
        RegionBlock(r, "", "g2-standard-4", False, BlockKind.STOCKOUT, NOW, NOW, at(300), 1, "x")
        for r in REGIONS
    )
    capped, higher = job(1, max_usd_per_hour=1.5), job(2, max_usd_per_hour=2.5)
    coming = vm("vm-2", V.BOOTING, region="us-east1", usd_per_hour=2.0)
    reasons = Cycle(snapshot((capped, higher), (coming,), (first,))).reasons
    stockout = "us-central1 stockout until 12:05:00 UTC"
    assert reasons["job-uid-0001"].why == (
        f"waits for a VM; {stockout}; then it is tried again; 2 regions above its cap of $1.5 are "
        "not asked"
    )
    assert reasons["job-uid-0002"].why == f"waits for a VM in us-east1; {stockout}"
    reasons = Cycle(snapshot((capped, higher), (), (first, second))).reasons
    assert reasons["job-uid-0001"].why.endswith("; 1 region above its cap of $1.5 is not asked")
    assert reasons["job-uid-0002"].why.endswith("; 1 region above its cap of $2.5 is not asked")
    reasons = Cycle(snapshot((capped, higher), (), (second, third))).reasons
    assert reasons["job-uid-0001"].why == "waits for a VM"
    assert "above its cap" not in reasons["job-uid-0002"].why


def test_a_cluster_that_is_new_is_not_called_missing() -> None:
    """It is looked at before its groups are made: no moment is named after which it would be asked,
    since it is asked as soon as one is seen."""
    block = RegionBlock(
        "us-east1", "", "g2-standard-4", False, BlockKind.MISSING, NOW, NOW, at(900), 1, "404"
    )
    why = (
        Cycle(snapshot((job(1, regions=("us-east1",)),), (), (block,))).reasons["job-uid-0001"].why
    )
    assert why == (
        "waits for a VM; us-east1 has no group yet (new, or still to be made: zen infra gcloud); "
        "then it is tried again, or it allows other regions"
    )


def test_resumed_attempt_is_told_so() -> None:
    """A later attempt may find a checkpoint."""
    again = job(1, E.ADMITTED, E.PLACED, E.STARTED, E.VM_LOST)
    (start,) = Cycle(snapshot((again,), (vm("vm-9"),))).told
    assert isinstance(start, StartJob)
    assert (start.resume, start.attempt) == (True, 2)


@given(
    jobs=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12),
    vms=st.lists(st.sampled_from([V.READY, V.BOOTING, V.DRAINING, V.DELETING]), max_size=6),
    vm_max=st.integers(0, 6),
)
def test_cycles_keep_the_guarantees(
    jobs: list[tuple[int, bool]], vms: list[VmState], vm_max: int
) -> None:
    """One job per VM, only READY ones, the best-ranked first, one start per placement."""
    waiting = tuple(
        job(number, *((E.ADMITTED,) if admitted else ()), priority=priority)
        for number, (priority, admitted) in enumerate(jobs)
    )
    seen = snapshot(waiting, tuple(vm(f"idle-{n}", state) for n, state in enumerate(vms)))
    cycle = Cycle(seen, vm_max=vm_max)
    placed = [j for j in cycle.plan.jobs.values() if j.status is S.ASSIGNED]
    held = [j.lease.vm_name for j in placed if j.lease]
    assert len(set(held)) == len(held) == len(cycle.told)
    assert all(cycle.vm(name).state is V.READY for name in held)
    assert len(placed) == min(len(jobs), vms.count(V.READY), vm_max)
    if placed and len(placed) < len(jobs):
        worst = min(j.spec.priority for j in placed)
        left = [j for j in cycle.plan.jobs.values() if j.status is not S.ASSIGNED]
        assert worst >= max(j.spec.priority for j in left)
