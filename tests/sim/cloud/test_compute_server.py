"""The pretend cloud through Google's own client library, which is not modified."""

from typing import Any

import pytest
from google.api_core import exceptions

from tests.sim.cloud.rig import BASE, Rig, Serve
from tests.sim.helpers import REGION, mig_json

pytestmark = pytest.mark.slow


# --- size and actions ---------------------------------------------------------------------------


async def test_operation_is_done_on_acceptance_not_when_vms_exist(rig: Rig) -> None:
    """createInstances raises targetSize, and its operation is DONE before any VM exists."""
    operation = await rig.create(f"{BASE}-job1", f"{BASE}-job2")
    assert operation.status == rig.c.Operation.Status.DONE
    assert (await rig.get()).target_size == 2
    assert rig.cloud.vms(rig.clock()) == []


async def test_name_and_url_exist_before_the_vm(rig: Rig) -> None:
    """A member has name and URL at once; id and instanceStatus are empty until its VM exists."""
    await rig.create(f"{BASE}-job1")
    member = (await rig.members())[f"{BASE}-job1"]
    assert member.instance.endswith(f"/instances/{BASE}-job1")
    assert (member.id, member.instance_status, member.current_action) == (0, "", "CREATING")
    zone = member.instance.split("/zones/")[1].split("/")[0]
    with pytest.raises(exceptions.NotFound):
        await rig.call(rig.instances.get, project="zen-test", zone=zone, instance=f"{BASE}-job1")


async def test_vm_comes_up_through_its_statuses(rig: Rig) -> None:
    """PROVISIONING, STAGING, RUNNING; the group is stable when its last action ended."""
    await rig.create(f"{BASE}-job1")
    for expected in (
        ("PROVISIONING", "CREATING", False),
        ("STAGING", "CREATING", False),
        ("RUNNING", "NONE", True),
    ):
        rig.clock.pass_s(5)
        member = (await rig.members())[f"{BASE}-job1"]
        stable = (await rig.get()).status.is_stable
        assert (member.instance_status, member.current_action, stable) == expected
        assert member.id > 0
    group = await rig.get()
    assert (group.current_actions.none, group.current_actions.creating) == (1, 0)


async def test_current_actions_count_members(rig: Rig) -> None:
    """currentActions sums up what the group does with its members."""
    await rig.running(f"{BASE}-a", f"{BASE}-b")
    await rig.create(f"{BASE}-c")
    await rig.delete(next(iter((await rig.members()).values())).instance)
    actions = (await rig.get()).current_actions
    assert (actions.none, actions.creating, actions.deleting) == (1, 1, 1)


async def test_resize_grows_with_invented_names_and_shrinks_by_its_own_choice(rig: Rig) -> None:
    """resize sets the target; new names are the base name plus four characters."""
    await rig.resize(3)
    rig.clock.pass_s(15)
    names = set(await rig.members())
    assert len(names) == 3
    assert all(name.startswith(f"{BASE}-") and len(name) == len(BASE) + 5 for name in names)
    operation = await rig.resize(1)
    assert operation.status == rig.c.Operation.Status.DONE
    assert (await rig.get()).target_size == 1
    leaving = [m for m in (await rig.members()).values() if m.current_action == "DELETING"]
    assert len(leaving) == 2
    rig.clock.pass_s(4)
    assert len(await rig.members()) == 1


# --- errors -------------------------------------------------------------------------------------


async def test_creating_retries_for_ever_on_a_stockout(rig: Rig) -> None:
    """A stocked out member stays CREATING with lastAttempt errors, hours later too, and comes up
    by itself once there is capacity."""
    fault = await rig.fault(kind="stockout", region=REGION)
    await rig.create(f"{BASE}-job1")
    rig.clock.pass_s(2)
    for _ in range(2):
        member = (await rig.members())[f"{BASE}-job1"]
        error = member.last_attempt.errors.errors[0]
        assert error.code == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
        assert (member.current_action, member.id, member.target_status) == (
            "CREATING",
            0,
            "RUNNING",
        )
        rig.clock.pass_s(3 * 3600)
    await rig.fault(kind="clear", id=fault["id"])
    rig.clock.pass_s(20 + 15)
    member = (await rig.members())[f"{BASE}-job1"]
    assert member.instance_status == "RUNNING"
    assert not member.last_attempt.errors.errors


async def test_stockout_details_name_zones_with_capacity(served: Serve) -> None:
    """errorInfo says resource_availability, the zone, and zonesAvailable in the region."""
    other = mig_json("other-mig", zones=["us-central1-f"])
    rig = await served(mig_json(zones=["us-central1-a"]), other)
    await rig.fault(kind="stockout", zone="us-central1-a", machine_type="a2-highgpu-1g")
    await rig.create(f"{BASE}-job1")
    rig.clock.pass_s(2)
    error = (await rig.members())[f"{BASE}-job1"].last_attempt.errors.errors[0]
    info = next(d.error_info for d in error.error_details if d.error_info.reason)
    assert info.reason == "resource_availability"
    assert info.metadatas["zonesAvailable"] == "us-central1-f"
    assert info.metadatas["zone"] == "us-central1-a"
    assert info.metadatas["vmType"] == "a2-highgpu-1g"


async def test_any_shape_goes_around_a_stocked_out_zone(rig: Rig) -> None:
    """A group of shape ANY places its VMs in the zones that have capacity."""
    await rig.fault(kind="stockout", zone="us-central1-a")
    await rig.running(*(f"{BASE}-{i}" for i in range(5)))
    assert all("/us-central1-b/" in m.instance for m in (await rig.members()).values())


async def test_quota_error_carries_the_limit(rig: Rig) -> None:
    """QUOTA_EXCEEDED comes with the metric and the limit in quotaInfo."""
    await rig.fault(kind="quota", region=REGION, metric="NVIDIA_A100_GPUS", limit=1)
    await rig.create(f"{BASE}-a", f"{BASE}-b")
    rig.clock.pass_s(15)
    by_status = {m.instance_status: m for m in (await rig.members()).values()}
    assert set(by_status) == {"RUNNING", ""}
    error = by_status[""].last_attempt.errors.errors[0]
    assert error.code == "QUOTA_EXCEEDED"
    assert error.error_details[0].quota_info.limit == 1
    assert error.error_details[0].quota_info.metric_name.endswith("nvidia_a100_gpus")


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        (
            [
                {"kind": "unsupported", "zone": zone, "machine_type": "a2-highgpu-1g"}
                for zone in ("us-central1-a", "us-central1-b")
            ],
            "UNSUPPORTED_OPERATION",
        ),
        ([{"kind": "address-space", "region": REGION}], "IP_SPACE_EXHAUSTED"),
        ([{"kind": "permissions", "region": REGION}], "PERMISSIONS_ERROR"),
    ],
)
async def test_other_causes_have_codes_of_their_own(
    rig: Rig, faults: list[dict[str, Any]], code: str
) -> None:
    """Each cause shows its own code on the member while it is CREATING."""
    for fault in faults:
        await rig.fault(**fault)
    await rig.create(f"{BASE}-job1")
    rig.clock.pass_s(2)
    member = (await rig.members())[f"{BASE}-job1"]
    assert [e.code for e in member.last_attempt.errors.errors] == [code]
    assert member.current_action == "CREATING"


async def test_error_history_survives_success(rig: Rig) -> None:
    """listErrors still shows the stockout after the VM is RUNNING."""
    await rig.fault(kind="stockout", region=REGION, for_s=10)
    await rig.create(f"{BASE}-job1")
    rig.clock.pass_s(60)
    assert (await rig.members())[f"{BASE}-job1"].instance_status == "RUNNING"
    errors = await rig.errors()
    assert [e.error.code for e in errors] == ["ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"]
    assert errors[0].instance_action_details.action == "CREATING"
    assert errors[0].instance_action_details.instance.endswith(f"/{BASE}-job1")
    assert errors[0].timestamp.startswith("2023-11-14T")


# --- choosing victims ---------------------------------------------------------------------------


async def test_delete_by_name_takes_exactly_those(rig: Rig) -> None:
    """deleteInstances lowers targetSize and removes the named VM, with its zone in the URL."""
    await rig.running(f"{BASE}-a", f"{BASE}-b")
    victim = (await rig.members())[f"{BASE}-a"]
    await rig.delete("zones/" + victim.instance.split("/zones/")[1])
    assert (await rig.get()).target_size == 1
    assert (await rig.members())[f"{BASE}-a"].current_action == "DELETING"
    rig.clock.pass_s(4)
    assert set(await rig.members()) == {f"{BASE}-b"}


async def test_delete_of_a_name_without_vm_gives_up_on_it(rig: Rig) -> None:
    """Deleting a CREATING name that has no VM yet lowers targetSize, and no VM ever comes."""
    await rig.fault(kind="stockout", region=REGION, for_s=60)
    await rig.create(f"{BASE}-job1")
    rig.clock.pass_s(2)
    await rig.delete((await rig.members())[f"{BASE}-job1"].instance)
    assert (await rig.get()).target_size == 0
    rig.clock.pass_s(3600)
    assert await rig.members() == {}
    assert rig.cloud.vms(rig.clock()) == []


async def test_delete_of_strangers_fails_unless_skipped(rig: Rig) -> None:
    """A name that is no member, or is leaving already, fails the whole call; with
    skipInstancesOnValidationError the rest is done."""
    await rig.running(f"{BASE}-a", f"{BASE}-b")
    members = await rig.members()
    stranger = members[f"{BASE}-a"].instance.replace(f"{BASE}-a", "nobody")
    with pytest.raises(exceptions.BadRequest):
        await rig.delete(stranger, members[f"{BASE}-a"].instance)
    assert (await rig.get()).target_size == 2
    await rig.delete(stranger, members[f"{BASE}-a"].instance, skip=True)
    await rig.delete(members[f"{BASE}-a"].instance, members[f"{BASE}-b"].instance, skip=True)
    assert (await rig.get()).target_size == 0


async def test_malformed_or_foreign_urls_fail_even_when_skipping(rig: Rig) -> None:
    """A URL without a zone, or of another region, is refused in any case."""
    for url in (f"{BASE}-a", f"zones/europe-west4-a/instances/{BASE}-a"):
        with pytest.raises(exceptions.BadRequest):
            await rig.delete(url, skip=True)


async def test_at_most_1000_instances_per_call(rig: Rig) -> None:
    """More than 1000 in one call are refused, and nothing is done."""
    with pytest.raises(exceptions.BadRequest, match="1 to 1000"):
        await rig.create(*(f"{BASE}-{i}" for i in range(1001)))
    assert (await rig.get()).target_size == 0


async def test_abandoned_vm_lives_on_outside_the_group(rig: Rig) -> None:
    """abandonInstances lowers targetSize and leaves the VM running."""
    await rig.running(f"{BASE}-a")
    member = (await rig.members())[f"{BASE}-a"]
    resource = rig.c.RegionInstanceGroupManagersAbandonInstancesRequest(instances=[member.instance])
    await rig.call(
        rig.groups.abandon_instances_unary,
        **rig.at(),
        region_instance_group_managers_abandon_instances_request_resource=resource,
    )
    assert (await rig.get()).current_actions.abandoning == 1
    rig.clock.pass_s(4)
    assert (await rig.members(), (await rig.get()).target_size) == ({}, 0)
    zone = member.instance.split("/zones/")[1].split("/")[0]
    vm = await rig.call(rig.instances.get, project="zen-test", zone=zone, instance=f"{BASE}-a")
    assert (vm.id, vm.status) == (member.id, "RUNNING")
