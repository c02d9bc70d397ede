"""The pretend cloud through Google's own client library, which is not modified."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials

from sim.cloud.physics import CloudProject
from sim.cloud.server import build_app
from sim.cloud.world import World
from tests.sim.helpers import REGION, HandClock, make_world, mig_json

pytestmark = pytest.mark.slow

MIG = "zen-mig"
BASE = "zen-mig-vm"


@pytest.fixture(scope="session")
def compute() -> Any:
    """google.cloud.compute_v1, whose import takes seconds."""
    from google.cloud import compute_v1  # noqa: PLC0415

    return compute_v1


@dataclass
class Rig:
    """A served cloud with a hand-driven clock, and Google's clients pointed at it."""

    c: Any
    cloud: CloudProject
    clock: HandClock
    url: str
    groups: Any
    instances: Any
    operations: Any
    zone_operations: Any

    async def call(self, method: Callable[..., Any], **arguments: Any) -> Any:
        return await asyncio.to_thread(method, **arguments)

    def at(self, mig: str = MIG) -> dict[str, str]:
        return {"project": "zen-test", "region": REGION, "instance_group_manager": mig}

    async def get(self, mig: str = MIG) -> Any:
        return await self.call(self.groups.get, **self.at(mig))

    async def members(self, mig: str = MIG, **request: Any) -> dict[str, Any]:
        listed = await self.call(
            lambda: list(self.groups.list_managed_instances(request={**self.at(mig), **request}))
        )
        return {member.name: member for member in listed}

    async def create(self, *names: str, mig: str = MIG, request_id: str | None = None) -> Any:
        resource = self.c.RegionInstanceGroupManagersCreateInstancesRequest(
            instances=[self.c.PerInstanceConfig(name=name) for name in names]
        )
        request = self.c.CreateInstancesRegionInstanceGroupManagerRequest(
            **self.at(mig),
            region_instance_group_managers_create_instances_request_resource=resource,
        )
        if request_id is not None:
            request.request_id = request_id
        return await self.call(self.groups.create_instances_unary, request=request)

    async def delete(self, *urls: str, skip: bool = False, mig: str = MIG) -> Any:
        resource = self.c.RegionInstanceGroupManagersDeleteInstancesRequest(
            instances=list(urls), skip_instances_on_validation_error=skip
        )
        return await self.call(
            self.groups.delete_instances_unary,
            **self.at(mig),
            region_instance_group_managers_delete_instances_request_resource=resource,
        )

    async def resize(self, size: int, mig: str = MIG) -> Any:
        return await self.call(self.groups.resize_unary, **self.at(mig), size=size)

    async def errors(self, mig: str = MIG) -> list[Any]:
        errors: list[Any] = await self.call(lambda: list(self.groups.list_errors(**self.at(mig))))
        return errors

    async def running(self, *names: str, mig: str = MIG) -> None:
        await self.create(*names, mig=mig)
        self.clock.pass_s(15)
        assert {m.instance_status for m in (await self.members(mig)).values()} == {"RUNNING"}

    async def fault(self, **fault: Any) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/sim/v1/faults", json=fault) as answer,
        ):
            body = await answer.json()
            assert answer.status in (200, 201), body
            return body


@asynccontextmanager
async def serve(c: Any, world: World, clock: HandClock) -> AsyncIterator[Rig]:
    cloud = CloudProject(world, clock())
    runner = web.AppRunner(build_app(cloud, clock, lambda: None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    options = {
        "credentials": AnonymousCredentials(),  # type: ignore[no-untyped-call]
        "client_options": ClientOptions(api_endpoint=url),
    }
    rig = Rig(
        c,
        cloud,
        clock,
        url,
        c.RegionInstanceGroupManagersClient(**options),
        c.InstancesClient(**options),
        c.RegionOperationsClient(**options),
        c.ZoneOperationsClient(**options),
    )
    try:
        yield rig
    finally:
        await runner.cleanup()


Serve = Callable[..., Awaitable[Rig]]


@pytest.fixture
async def served(compute: Any, clock: HandClock) -> AsyncIterator[Serve]:
    """Starts a cloud for the world that a test wants."""
    open_rigs = []

    async def start(*migs: dict[str, Any], **changes: Any) -> Rig:
        context = serve(compute, make_world(*migs, **changes), clock)
        open_rigs.append(context)
        return await context.__aenter__()

    yield start
    for context in open_rigs:
        await context.__aexit__(None, None, None)


@pytest.fixture
async def rig(served: Serve) -> Rig:
    return await served()


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


# --- mechanics ----------------------------------------------------------------------------------


async def test_repeated_request_id_is_ignored(rig: Rig) -> None:
    """The same requestId twice makes one set of VMs and yields the original operation."""
    request_id = str(uuid.UUID(int=5))
    first = await rig.create(f"{BASE}-a", request_id=request_id)
    second = await rig.create(f"{BASE}-a", request_id=request_id)
    assert first.client_operation_id == second.client_operation_id == request_id
    assert first.name == second.name
    assert (await rig.get()).target_size == 1


async def test_zero_or_malformed_request_id_is_refused(rig: Rig) -> None:
    """A requestId must be a UUID, and not zero."""
    for request_id in (str(uuid.UUID(int=0)), "not-a-uuid"):
        with pytest.raises(exceptions.BadRequest, match="requestId"):
            await rig.create(f"{BASE}-a", request_id=request_id)
    assert (await rig.get()).target_size == 0


async def test_name_in_use_is_refused(rig: Rig) -> None:
    """createInstances for a name that exists is a conflict, and nothing of the call is done."""
    await rig.create(f"{BASE}-a")
    with pytest.raises(exceptions.Conflict) as refused:
        await rig.create(f"{BASE}-b", f"{BASE}-a")
    assert refused.value.errors[0]["reason"] == "alreadyExists"
    with pytest.raises(exceptions.BadRequest):
        await rig.create(f"{BASE}-c", f"{BASE}-c")
    assert set(await rig.members()) == {f"{BASE}-a"}


async def test_name_may_come_back_with_another_id(rig: Rig) -> None:
    """A deleted name can be created again; the id is new."""
    await rig.running(f"{BASE}-a")
    first = (await rig.members())[f"{BASE}-a"]
    await rig.delete(first.instance)
    rig.clock.pass_s(4)
    await rig.running(f"{BASE}-a")
    assert (await rig.members())[f"{BASE}-a"].id != first.id


async def test_pageless_group_ignores_max_results(rig: Rig) -> None:
    """By default listManagedInstances answers with the whole group, whatever the caller asks."""
    await rig.resize(7)
    pager = await rig.call(
        rig.groups.list_managed_instances, request={**rig.at(), "max_results": 2}
    )
    assert len(pager.managed_instances) == 7
    assert pager.next_page_token == ""


async def test_paginated_group_answers_in_pages(served: Serve) -> None:
    """A PAGINATED group honours maxResults, and the client's pager finds every member once."""
    rig = await served(mig_json(list_mode="PAGINATED"))
    await rig.resize(7)
    pager = await rig.call(
        rig.groups.list_managed_instances, request={**rig.at(), "max_results": 3}
    )
    pages = await rig.call(lambda: [len(page.managed_instances) for page in pager.pages])
    assert pages == [3, 3, 1]
    assert len(await rig.members(max_results=2)) == 7


async def test_operations_can_be_got_and_waited_for(rig: Rig) -> None:
    """regionOperations get and wait know the operation of a call."""
    operation = await rig.resize(1)
    where = {"project": "zen-test", "region": REGION, "operation": operation.name}
    for method in (rig.operations.get, rig.operations.wait):
        found = await rig.call(method, **where)
        assert (found.id, found.status) == (operation.id, rig.c.Operation.Status.DONE)
    with pytest.raises(exceptions.NotFound):
        await rig.call(rig.operations.get, **{**where, "operation": "operation-none"})


async def test_extended_operation_ends_on_loopback(rig: Rig) -> None:
    """op.result() works when the client's operations service is pointed here as well."""
    rig.groups.transport._extended_operations_services["region_operations"] = rig.operations
    operation = await rig.call(rig.groups.resize, **rig.at(), size=2)
    await asyncio.to_thread(operation.result, timeout=20)
    assert (await rig.get()).target_size == 2


async def test_missing_things_are_not_found(rig: Rig) -> None:
    """Unknown group, region or project: 404 with Google's reason."""
    for change in (
        {"instance_group_manager": "none"},
        {"region": "europe-west4"},
        {"project": "other"},
    ):
        with pytest.raises(exceptions.NotFound) as missing:
            await rig.call(rig.groups.get, **{**rig.at(), **change})
        assert missing.value.errors[0]["reason"] == "notFound"


async def test_groups_of_a_region_are_listed_page_by_page(served: Serve) -> None:
    """The pager over a region's groups finds every group, in pages of the size asked for."""
    rig = await served(*(mig_json(f"mig-{i}") for i in range(5)))
    request = {"project": "zen-test", "region": REGION, "max_results": 2}
    pager = await rig.call(rig.groups.list, request=request)
    names = await rig.call(lambda: [mig.name for mig in pager])
    assert names == [f"mig-{i}" for i in range(5)]


async def test_aggregated_list_filters_by_label(served: Serve) -> None:
    """aggregated/instances with labels.k=v finds the VMs of all zones that carry the label."""
    rig = await served(mig_json(), mig_json("other-mig", labels={"zen": "0"}))
    await rig.running(f"{BASE}-a")
    await rig.running("other-a", mig="other-mig")

    def names(text: str) -> list[str]:
        found = rig.instances.aggregated_list(request={"project": "zen-test", "filter": text})
        return [vm.name for _, scoped in found for vm in scoped.instances]

    assert await rig.call(names, text="labels.zen=1") == [f"{BASE}-a"]
    assert sorted(await rig.call(names, text="")) == ["other-a", f"{BASE}-a"]
    both = "(labels.zen=0) AND (status=RUNNING)"
    assert await rig.call(names, text=both) == ["other-a"]
    with pytest.raises(exceptions.BadRequest, match="filter"):
        await rig.call(names, text="labels.zen>1")


async def test_instance_shows_labels_metadata_and_spot(served: Serve) -> None:
    """instances.get shows what the template gave the VM, and created-by its group."""
    rig = await served(mig_json(spot=True))
    await rig.running(f"{BASE}-a")
    zone = rig.cloud.vms(rig.clock())[0].info.zone
    vm = await rig.call(rig.instances.get, project="zen-test", zone=zone, instance=f"{BASE}-a")
    metadata = {item.key: item.value for item in vm.metadata.items}
    assert metadata["zen-cluster"] == "1xa100-40gb"
    assert metadata["created-by"].endswith(f"/regions/{REGION}/instanceGroupManagers/{MIG}")
    assert dict(vm.labels) == {"zen": "1"}
    assert vm.scheduling.provisioning_model == "SPOT"


async def test_ids_are_texts_on_the_wire(rig: Rig) -> None:
    """int64 values are JSON strings, as in all of Google's JSON."""
    await rig.running(f"{BASE}-a")
    path = f"/compute/v1/projects/zen-test/regions/{REGION}/instanceGroupManagers/{MIG}"
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{rig.url}{path}/listManagedInstances") as answer:
            members = (await answer.json())["managedInstances"]
        async with session.post(f"{rig.url}{path}/resize?size=1") as answer:
            operation = await answer.json()
    assert isinstance(members[0]["id"], str)
    assert isinstance(operation["id"], str)


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
    and the same requestId afterwards yields the operation that was lost."""
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


# --- several at once ----------------------------------------------------------------------------


@pytest.fixture
def together(rig: Rig) -> Callable[..., Awaitable[Any]]:
    """Makes a resize request with Google's own client."""
    client = rig.c.RegionInstanceGroupManagerResizeRequestsClient(
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        client_options=ClientOptions(api_endpoint=rig.url),
    )

    async def ask(mig: str = MIG, **resource: Any) -> Any:
        resource = {"name": "gang", "requested_run_duration": {"seconds": 3600}, **resource}
        request = {**rig.at(mig), "instance_group_manager_resize_request_resource": resource}
        await rig.call(client.insert_unary, request=request)
        shown = await rig.call(lambda: list(client.list(**rig.at(mig))))
        return {entry.name: entry for entry in shown}["gang"]

    return ask


async def test_resize_request_by_count_invents_names(
    rig: Rig, together: Callable[..., Awaitable[Any]]
) -> None:
    """resizeBy raises targetSize at once; the request is ACCEPTED and shows its count."""
    entry = await together(resize_by=3)
    assert (entry.state, entry.resize_by, list(entry.instances)) == ("ACCEPTED", 3, [])
    assert (await rig.get()).target_size == 3
    assert all(name.startswith(f"{BASE}-") for name in await rig.members())
    rig.clock.pass_s(15)
    assert {m.instance_status for m in (await rig.members()).values()} == {"RUNNING"}


@pytest.mark.parametrize(
    "resource",
    [
        {"resize_by": 1, "instances": [{"name": "a"}]},
        {},
        {"resize_by": 1, "requested_run_duration": {"seconds": 599}},
    ],
)
async def test_resize_request_that_makes_no_sense(
    rig: Rig, together: Callable[..., Awaitable[Any]], resource: dict[str, Any]
) -> None:
    """Names or a count, one of them, for ten minutes at least; else nothing happens."""
    with pytest.raises(exceptions.BadRequest):
        await together(**resource)
    assert (await rig.get()).target_size == 0


async def test_resize_request_needs_repairs_off(served: Serve) -> None:
    """A group that repairs its VMs takes no resize requests."""
    rig = await served(mig_json(default_action_on_failure="REPAIR"))
    client = rig.c.RegionInstanceGroupManagerResizeRequestsClient(
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        client_options=ClientOptions(api_endpoint=rig.url),
    )
    resource = {"name": "gang", "resize_by": 1, "requested_run_duration": {"seconds": 3600}}
    request = {**rig.at(), "instance_group_manager_resize_request_resource": resource}
    with pytest.raises(exceptions.BadRequest, match="DO_NOTHING"):
        await rig.call(client.insert_unary, request=request)
