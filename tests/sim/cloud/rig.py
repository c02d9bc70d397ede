"""The pretend cloud, served, with Google's own client library."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials

from sim.cloud.physics import CloudProject
from sim.cloud.server import build_app
from sim.cloud.world import World
from tests.sim.helpers import REGION, HandClock

MIG = "zen-mig"
BASE = "zen-mig-vm"


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
