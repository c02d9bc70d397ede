"""VMs that fail or are reclaimed, and calls that are refused, through Google's own client."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.api_core import exceptions

from tests.sim.cloud.rig import BASE, MIG, Rig, Serve
from tests.sim.helpers import REGION, mig_json

pytestmark = pytest.mark.slow


# --- failure, preemption, stopping --------------------------------------------------------------


def _guest_exit(rig: Rig) -> Awaitable[Any]:
    async def leave() -> None:
        rig.cloud.guest_exited(rig.cloud.vms(rig.clock())[0].info.id, rig.clock())

    return leave()


def _preempt(rig: Rig) -> Awaitable[Any]:
    return rig.fault(kind="preempt", vm=f"{BASE}-a")


def _crash(rig: Rig) -> Awaitable[Any]:
    return rig.fault(kind="crash", vm=f"{BASE}-a")


async def _stop(rig: Rig) -> None:
    zone = rig.cloud.vms(rig.clock())[0].info.zone
    await rig.call(rig.instances.stop_unary, project="zen-test", zone=zone, instance=f"{BASE}-a")


@pytest.mark.parametrize("end", [_guest_exit, _preempt, _crash, _stop])
async def test_do_nothing_leaves_a_failed_member_terminated(
    served: Serve, end: Callable[[Rig], Awaitable[Any]]
) -> None:
    """With DO_NOTHING a VM that stopped stays a TERMINATED member, and still counts."""
    rig = await served(mig_json(spot=True))
    await rig.running(f"{BASE}-a")
    before = (await rig.members())[f"{BASE}-a"].id
    await end(rig)
    rig.clock.pass_s(3600)
    after = (await rig.members())[f"{BASE}-a"]
    assert (after.id, after.instance_status, after.current_action) == (before, "TERMINATED", "NONE")
    group = await rig.get()
    assert (group.target_size, group.status.is_stable) == (1, True)
    assert group.instance_lifecycle_policy.default_action_on_failure == "DO_NOTHING"


@pytest.mark.parametrize("end", [_guest_exit, _preempt, _crash, _stop])
async def test_repair_makes_a_new_vm_under_the_old_name(
    served: Serve, end: Callable[[Rig], Awaitable[Any]]
) -> None:
    """With REPAIR a VM that stopped is recreated: same name, another id."""
    rig = await served(mig_json(spot=True, default_action_on_failure="REPAIR"))
    await rig.running(f"{BASE}-a")
    before = (await rig.members())[f"{BASE}-a"].id
    await end(rig)
    rig.clock.pass_s(30)
    rig.clock.pass_s(15)
    after = (await rig.members())[f"{BASE}-a"]
    assert (after.instance_status, after.current_action) == ("RUNNING", "NONE")
    assert after.id != before
    assert (await rig.get()).target_size == 1


async def test_instances_delete_on_a_member_is_undone_by_repair(served: Serve) -> None:
    """instances.delete does not shrink a group: the MIG recreates the member."""
    rig = await served(mig_json(default_action_on_failure="REPAIR"))
    await rig.running(f"{BASE}-a")
    member = (await rig.members())[f"{BASE}-a"]
    zone = member.instance.split("/zones/")[1].split("/")[0]
    where = {"project": "zen-test", "zone": zone}
    operation = await rig.call(rig.instances.delete_unary, **where, instance=f"{BASE}-a")
    assert operation.status == rig.c.Operation.Status.RUNNING
    rig.clock.pass_s(4)
    operation = await rig.call(rig.zone_operations.get, **where, operation=operation.name)
    assert operation.status == rig.c.Operation.Status.DONE
    assert (await rig.members())[f"{BASE}-a"].current_action == "RECREATING"
    rig.clock.pass_s(15)
    after = (await rig.members())[f"{BASE}-a"]
    assert after.instance_status == "RUNNING"
    assert after.id != member.id


async def test_spot_preemption_gives_notice_then_terminates(served: Serve) -> None:
    """A preempted spot VM is STOPPING for its notice, then TERMINATED."""
    rig = await served(mig_json(spot=True))
    await rig.running(f"{BASE}-a")
    await rig.fault(kind="preempt", vm=f"{BASE}-a")
    statuses = []
    for seconds in (0, 29, 1):
        rig.clock.pass_s(seconds)
        statuses.append((await rig.members())[f"{BASE}-a"].instance_status)
    assert statuses == ["STOPPING", "STOPPING", "TERMINATED"]


# --- API faults ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error", "reason"),
    [
        ("rateLimitExceeded", exceptions.Forbidden, "rateLimitExceeded"),
        ("429", exceptions.TooManyRequests, "rateLimitExceeded"),
        ("500", exceptions.InternalServerError, "internalError"),
        ("503", exceptions.ServiceUnavailable, "backendError"),
    ],
)
async def test_api_faults_refuse_calls_without_effect(
    rig: Rig, kind: str, error: type[exceptions.GoogleAPICallError], reason: str
) -> None:
    """An API fault answers with Google's status and reason, and the call has no effect."""
    fault = await rig.fault(kind="api-errors", region=REGION, rate=1, kinds=[kind])
    with pytest.raises(error) as refused:
        await rig.create(f"{BASE}-a")
    assert refused.value.errors[0]["reason"] == reason
    await rig.fault(kind="clear", id=fault["id"])
    assert (await rig.get()).target_size == 0


async def test_lost_answer_has_its_effect(rig: Rig) -> None:
    """timeout-after-success: the caller sees a broken connection, the VM is created all the same,
    and the same requestId afterwards returns the operation that was lost."""
    request_id = str(uuid.UUID(int=9))
    fault = await rig.fault(kind="api-errors", rate=1, kinds=["timeout-after-success"])
    with pytest.raises(OSError, match="Connection"):
        await rig.create(f"{BASE}-a", request_id=request_id)
    await rig.fault(kind="clear", id=fault["id"])
    assert (await rig.get()).target_size == 1
    again = await rig.create(f"{BASE}-a", request_id=request_id)
    assert again.client_operation_id == request_id
    assert (await rig.get()).target_size == 1


async def test_faults_of_one_region_spare_the_others(served: Serve) -> None:
    """An API fault in one region does not touch calls to another."""
    west = mig_json("west-mig", region="us-west1", zones=["us-west1-b"])
    rig = await served(mig_json(), west)
    await rig.fault(kind="api-errors", region="us-west1", rate=1, kinds=["500"])
    assert (await rig.get()).name == MIG
    with pytest.raises(exceptions.InternalServerError):
        await rig.call(
            rig.groups.get,
            project="zen-test",
            region="us-west1",
            instance_group_manager="west-mig",
        )
