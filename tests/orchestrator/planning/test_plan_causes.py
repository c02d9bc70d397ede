"""For whom a VM is asked for: the job that pays for its boot and for its idling."""

from __future__ import annotations

from dataclasses import replace

from core.actions import Create, Queue
from core.demand import Demand, VmRequest
from core.job import E
from core.supply import Arrivals, CapacityPolicy, SupplyOutcome
from core.timers import Timers
from core.vm import Vm, VmEvent, VmState, advance_vm
from orchestrator.planning.packing import packed
from orchestrator.planning.plan import plan_cluster
from orchestrator.planning.plan_input import PlanInput, demand_of
from tests.builders import NAMES, NOW, at, cluster, dice, job, vm
from tests.orchestrator.planning.planned import blocked, flat, inputs_of, seen
from tests.orchestrator.test_cluster_manager import House

V = VmState


def creates(inputs: PlanInput, now_s: float = 0) -> list[Create]:
    actions = plan_cluster(inputs, NAMES, Timers(), dice(), at(now_s))
    found = [action for action in actions if isinstance(action, Create)]
    assert all(len(action.names) == len(action.causes) for action in found)
    return found


def test_each_job_that_waits_is_the_cause_of_its_vm() -> None:
    """In the order of the queue; a floor is no job's."""
    requests = tuple(VmRequest(since=NOW, job=name) for name in ("first", "second"))
    asked = creates(inputs_of(requests, spec=cluster(vm_min=3)))
    causes = [cause for action in asked for cause in action.causes]
    assert len(causes) == 3
    assert set(causes) == {None, "first", "second"}


def test_only_jobs_that_have_no_vm_on_its_way_ask_for_one() -> None:
    """The VM that comes serves the first; the second one is the cause of the next."""
    requests = tuple(VmRequest(since=NOW, job=name) for name in ("first", "second"))
    coming = vm("vm-1", V.REQUESTED)
    (asked,) = creates(inputs_of(requests, coming))
    assert asked.causes == ("second",)


def test_hedge_is_caused_by_the_job_whose_request_may_fail() -> None:
    """A second region is asked because the wait of that job is at stake."""
    doubtful = replace(seen("us-central1", SupplyOutcome.HIT, 0), last=None, hits=0.0, misses=1.5)
    unsure = inputs_of(
        (VmRequest(since=NOW, job="first"),),
        spec=flat(1.0, 1.2, 9.0),
        supply=(doubtful, seen("us-east1", SupplyOutcome.HIT)),
        policy=CapacityPolicy(belief_bar=0.4),
    )
    asked = {action.region: action for action in creates(unsure)}
    assert asked["us-east1"].reason == "in case us-central1 fails"
    assert asked["us-east1"].causes == ("first",)


def test_probe_is_caused_by_the_first_that_waits_for_the_region() -> None:
    """One standing request in a region without capacity."""
    spec = cluster()
    blocks = tuple(blocked(region.region, 600) for region in spec.regions)
    requests = tuple(VmRequest(since=NOW, job=name) for name in ("first", "second"))
    inputs = PlanInput(spec, Demand("1xl4", requests), (), blocks)
    asked = creates(inputs)
    assert {cause for action in asked for cause in action.causes} == {"first"}


def test_spare_is_caused_by_the_newest_job_of_the_stream() -> None:
    """Or, when none of them waits or runs any more, by the job of the newest VM."""
    stream = Arrivals(at(-7200), tuple(at(-15 * i) for i in range(6, -1, -1)))
    requests = (VmRequest(since=at(-5), job="older"), VmRequest(since=NOW, job="newest"))
    asked = creates(inputs_of(requests, spec=cluster(vm_max=20), arrivals=stream))
    causes = [cause for action in asked for cause in action.causes]
    assert len(causes) > 2
    assert set(causes[2:]) == {"newest"}
    working = vm("vm-1", V.READY, leases=("lease",), caused_by="somebody")
    (later,) = creates(inputs_of((), working, spec=cluster(vm_max=20), arrivals=stream))
    assert set(later.causes) == {"somebody"}


def test_of_jobs_that_share_a_vm_the_first_is_its_cause() -> None:
    """Four jobs of one GPU each are one VM of four."""
    spec = cluster(gpus=4, share=True)
    demand = Demand("1xl4", tuple(VmRequest(gpus=1, job=f"j{n}") for n in range(4)))
    assert [request.job for request in packed(demand, spec, (), ()).requests] == ["j0"]


def test_members_of_a_gang_are_the_causes_of_its_request() -> None:
    """Each VM that is asked for together is one member's."""
    region = cluster().regions[0].region
    spec = cluster(flex_start_wait_s=3600.0, vm_max=8)
    requests = tuple(
        VmRequest((region,), since=NOW, gang="g", job=f"member-{rank}", run_s=3600)
        for rank in range(3)
    )
    inputs = PlanInput(spec, Demand("1xl4", requests), (), ())
    (asked,) = (
        action
        for action in plan_cluster(inputs, NAMES, Timers(), dice(), NOW)
        if isinstance(action, Queue)
    )
    assert asked.causes == ("member-0", "member-1", "member-2")


def test_demand_names_its_jobs() -> None:
    """By their uid."""
    waiting = job(1, E.ADMITTED)
    (request,) = demand_of("1xl4", [waiting]).requests
    assert request.job == waiting.uid


async def test_cause_is_written_with_the_vm() -> None:
    """With the row that counts against the limit: a leader that dies forgets nothing."""
    house = await House().open()
    await house.wait_for_work()
    await house.reconciles(1)
    (made,) = await house.vms()
    assert made.caused_by == job(1).uid
    assert made.idle_max_s == Timers().idle_timeout_s


def test_leaving_begins_once() -> None:
    """From DRAINING on; a VM that is called back does not leave any more."""
    idle: Vm = vm("vm-1", V.READY)
    draining = advance_vm(idle, VmEvent.DRAIN_ASKED, at(10), "idle")
    assert draining.leaving_since == at(10)
    assert advance_vm(draining, VmEvent.DRAIN_WITHDRAWN, at(20), "work").leaving_since is None
    deleting = advance_vm(draining, VmEvent.DELETE_ASKED, at(20), "idle")
    assert advance_vm(deleting, VmEvent.NOT_LISTED, at(30), "gone").leaving_since == at(10)


def test_demand_is_in_the_order_of_admission() -> None:
    """The queue has weighed priority, share and age already; a job that it has not considered yet
    comes after those."""
    first, second, third = (job(n, E.ADMITTED, priority=p) for n, p in ((1, 900), (2, 100), (3, 1)))
    jobs = (first, second, third)
    found = demand_of("1xl4", jobs, admitted=(second.uid, third.uid)).requests
    assert [(request.job, request.position) for request in found] == [
        (second.uid, 0),
        (third.uid, 1),
        (first.uid, 2),
    ]
