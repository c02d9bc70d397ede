"""The pretend cloud's own API under /sim/v1: see everything, set and clear faults."""

from typing import Final

from aiohttp import web

from sim.cloud.compute_server import CloudRoutes, Handler
from sim.cloud.faults import ActiveFault, Clear, Fault, KnownNames, Preempt, describe, parse_fault
from sim.cloud.model import Mig, PretendVm
from sim.cloud.parsing import InvalidInput
from sim.cloud.wire import Json, timestamp
from sim.cloud.world import parse_groups

PREFIX: Final = "/sim/v1"


class AdminServer(CloudRoutes):
    def add_routes(self, app: web.Application) -> None:
        app.router.add_get(PREFIX + "/state", self._state)
        app.router.add_post(PREFIX + "/faults", self._set)
        app.router.add_delete(PREFIX + "/faults", self._clear)
        app.router.add_delete(PREFIX + "/faults/{id}", self._clear)
        app.router.add_post(PREFIX + "/preempt", self._preempt)
        app.router.add_post(PREFIX + "/groups", self._add_groups)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith(PREFIX):
            return await handler(request)
        try:
            return await handler(request)
        except InvalidInput as bad:
            return web.json_response({"error": str(bad), "problems": bad.problems}, status=422)
        except web.HTTPException as error:
            return web.json_response(
                {"error": f"{request.method} {request.path}: {error.reason}", "problems": []},
                status=error.status,
            )

    async def _state(self, _: web.Request) -> web.Response:
        now = self._clock()
        migs = self._cloud.migs(None, now)
        vms = sorted(self._cloud.vms(now), key=lambda v: (v.info.name, v.info.id))
        body: Json = {
            "project": self._cloud.world.project,
            "now": timestamp(now),
            "migs": [_mig_state(m) for m in migs],
            "vms": [_vm_state(v) for v in vms],
            "faults": [_fault_state(a, now) for a in self._cloud.faults.active(now)],
        }
        return web.json_response(body)

    async def _set(self, request: web.Request) -> web.Response:
        raw = await _json(request)
        return self._apply(parse_fault(raw, self._known()))

    async def _preempt(self, request: web.Request) -> web.Response:
        raw = await _json(request)
        fields = raw if isinstance(raw, dict) else {}
        fault = parse_fault({**fields, "kind": "preempt"}, self._known())
        assert isinstance(fault, Preempt)
        return self._apply(fault)

    async def _add_groups(self, request: web.Request) -> web.Response:
        """Groups that exist already stay as they are."""
        made = self._cloud.add_groups(parse_groups(await _json(request)), self._clock())
        self._wake()
        return web.json_response({"made": made})

    async def _clear(self, request: web.Request) -> web.Response:
        return self._apply(Clear(request.match_info.get("id")))

    def _known(self) -> KnownNames:
        return self._cloud.world.known(self._cloud.vm_names())

    def _apply(self, fault: Fault) -> web.Response:
        now = self._clock()
        result = self._cloud.set_fault(fault, now)
        self._wake()
        if isinstance(result, ActiveFault):
            return web.json_response(_fault_state(result, now), status=201)
        return web.json_response({"kind": describe(fault)["kind"], "hit": list(result)})


async def _json(request: web.Request) -> object:
    try:
        body: object = await request.json()
    except ValueError as error:
        raise InvalidInput("body", [f"expected a JSON object, got {error}"]) from error
    return body


def _mig_state(mig: Mig) -> Json:
    return {
        "name": mig.spec.name,
        "region": mig.spec.region,
        "zones": list(mig.spec.zones),
        "machine_type": mig.spec.machine_type,
        "spot": mig.spec.spot,
        "target_size": mig.target_size,
        "stable": mig.is_stable,
        "members": [
            {
                "name": m.name,
                "zone": m.zone,
                "action": m.action.value,
                "vm_id": str(m.vm.info.id) if m.vm else None,
                "status": m.vm.status.value if m.vm else None,
                "error": m.failure.code if m.failure else None,
            }
            for m in mig.members.values()
        ],
    }


def _vm_state(vm: PretendVm) -> Json:
    return {
        "name": vm.info.name,
        "id": str(vm.info.id),
        "zone": vm.info.zone,
        "mig": vm.info.mig,
        "machine_type": vm.info.machine_type,
        "gpus": vm.info.gpus,
        "spot": vm.info.spot,
        "status": vm.status.value,
        "preempted": vm.preempted,
        "created_at": timestamp(vm.created_at),
    }


def _fault_state(active: ActiveFault, now: float) -> Json:
    left_s = None if active.until is None else round(active.until - now, 3)
    starts_in_s = round(max(0.0, active.since - now), 3)
    return {"id": active.id, **describe(active.fault), "left_s": left_s, "starts_in_s": starts_in_s}
