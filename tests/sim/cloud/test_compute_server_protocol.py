"""Request ids, names, pages, operations and resize requests, through Google's own client."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials

from tests.sim.cloud.rig import BASE, MIG, Rig, Serve
from tests.sim.helpers import REGION, mig_json

pytestmark = pytest.mark.slow


# --- mechanics ----------------------------------------------------------------------------------


async def test_repeated_request_id_is_ignored(rig: Rig) -> None:
    """The same requestId twice makes one set of VMs and returns the original operation."""
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
