"""Compute's lists that people look at with gcloud: groups of all regions, templates, regions."""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from sim.cloud.model import ApiError, Mig
from sim.cloud.physics import CloudProject
from sim.cloud.wire import Json, Wire, timestamp
from sim.cloud.world import MigSpec

PREFIX: Final = "/compute/v1/projects/{project}"


class Listings:
    """Routes that only read. No group here is autoscaled, and templates are those of the groups."""

    def __init__(
        self, cloud: CloudProject, clock: Callable[[], float], wire: Callable[[web.Request], Wire]
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._wire = wire

    def add_routes(self, app: web.Application) -> None:
        add = app.router.add_get
        add(PREFIX + "/aggregated/instanceGroupManagers", self._all_groups)
        add(PREFIX + "/aggregated/instanceTemplates", self._all_templates)
        add(PREFIX + "/global/instanceTemplates", self._templates)
        add(PREFIX + "/global/instanceTemplates/{template}", self._template)
        add(PREFIX + "/regions/{region}/instanceGroups", self._plain_groups)
        add(PREFIX + "/aggregated/autoscalers", self._no_autoscalers_anywhere)
        add(PREFIX + "/regions/{region}/autoscalers", self._no_autoscalers)
        add(PREFIX + "/regions", self._regions)
        add(PREFIX + "/regions/{region}", self._region)

    def _groups(self) -> list[Mig]:
        regions = sorted(self._cloud.world.known().regions)
        return [mig for region in regions for mig in self._cloud.migs(region, self._clock())]

    async def _all_groups(self, request: web.Request) -> web.Response:
        wire = self._wire(request)
        items: dict[str, dict[str, list[Json]]] = {}
        for mig in self._groups():
            scope = items.setdefault(f"regions/{mig.spec.region}", {"instanceGroupManagers": []})
            scope["instanceGroupManagers"].append(wire.mig(mig))
        return _answer("compute#instanceGroupManagerAggregatedList", items)

    async def _plain_groups(self, request: web.Request) -> web.Response:
        """The groups without their management: gcloud reads how many VMs each has."""
        wire, region = self._wire(request), request.match_info["region"]
        shown = [
            {
                "kind": "compute#instanceGroup",
                "id": str(mig.id),
                "name": mig.spec.name,
                "region": wire.link(f"regions/{region}"),
                "selfLink": wire.link(f"regions/{region}/instanceGroups/{mig.spec.name}"),
                "size": sum(member.vm is not None for member in mig.members.values()),
            }
            for mig in self._cloud.migs(region, self._clock())
        ]
        return _answer("compute#regionInstanceGroupList", shown)

    async def _all_templates(self, request: web.Request) -> web.Response:
        shown = self._shown_templates(request)
        items = {"global": {"instanceTemplates": shown}}
        return _answer("compute#instanceTemplateAggregatedList", items)

    async def _templates(self, request: web.Request) -> web.Response:
        return _answer("compute#instanceTemplateList", self._shown_templates(request))

    async def _template(self, request: web.Request) -> web.Response:
        name = request.match_info["template"]
        for template in self._shown_templates(request):
            if template["name"] == name:
                return web.json_response(template)
        raise ApiError(
            404, "notFound", f"The resource 'global/instanceTemplates/{name}' was not found"
        )

    def _shown_templates(self, request: web.Request) -> list[Json]:
        wire = self._wire(request)
        return [template_of(wire, mig) for mig in self._groups()]

    async def _no_autoscalers(self, _: web.Request) -> web.Response:
        return _answer("compute#regionAutoscalerList", [])

    async def _no_autoscalers_anywhere(self, _: web.Request) -> web.Response:
        return _answer("compute#autoscalerAggregatedList", {})

    async def _regions(self, request: web.Request) -> web.Response:
        names = sorted(self._cloud.world.known().regions)
        return _answer("compute#regionList", [self._shown_region(request, n) for n in names])

    async def _region(self, request: web.Request) -> web.Response:
        name = request.match_info["region"]
        self._cloud.migs(name, self._clock())  # a region that does not exist is not found
        return web.json_response(self._shown_region(request, name))

    def _shown_region(self, request: web.Request, name: str) -> Json:
        wire = self._wire(request)
        zones = self._cloud.world.zones_of(name)
        return {
            "kind": "compute#region",
            "name": name,
            "status": "UP",
            "selfLink": wire.link(f"regions/{name}"),
            "zones": [wire.link(f"zones/{zone}") for zone in zones],
            "quotas": [],
        }


def template_of(wire: Wire, mig: Mig) -> Json:
    """The instance template of a group, as far as the world knows it."""
    spec, name = mig.spec, f"{mig.spec.name}-tpl"
    return {
        "kind": "compute#instanceTemplate",
        "id": str(mig.id),
        "name": name,
        "creationTimestamp": timestamp(mig.created_at),
        "selfLink": wire.link(f"global/instanceTemplates/{name}"),
        "properties": {
            "machineType": spec.machine_type,
            "labels": dict(spec.labels),
            "metadata": {"items": [{"key": k, "value": v} for k, v in spec.metadata]},
            "guestAccelerators": _accelerators(spec),
            "scheduling": {
                "provisioningModel": "SPOT" if spec.spot else "STANDARD",
                "preemptible": spec.spot,
                "onHostMaintenance": "TERMINATE",
            },
        },
    }


def _accelerators(spec: MigSpec) -> list[Json]:
    if spec.accelerator is None or not spec.gpus:
        return []
    return [{"acceleratorType": spec.accelerator, "acceleratorCount": spec.gpus}]


def _answer(kind: str, items: object) -> web.Response:
    return web.json_response({"kind": kind, "items": items})
