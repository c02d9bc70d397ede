"""Compute Engine's REST API over the physics, for Google's own client libraries."""

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Final, TypeVar

from aiohttp import web

from sim.cloud import batch
from sim.cloud.flex_start import advice_body, read_advice, read_flex_start
from sim.cloud.listings import Listings
from sim.cloud.model import ApiError, Mig, Operation, PretendVm
from sim.cloud.operations import invalid
from sim.cloud.physics import CloudProject
from sim.cloud.wire import Json, Wire, error_body
from sim.cloud.world import region_of

PREFIX: Final = "/compute/v1/projects/{project}"
BODY_BYTES_MAX: Final = 4 * 2**20
PAGE_DEFAULT: Final = 500
WAIT_MAX_S: Final = 120.0
_WAIT_STEP_S: Final = 0.05

_FAULT_ANSWERS: Final = {
    "rateLimitExceeded": (403, "rateLimitExceeded", "Rate Limit Exceeded"),
    "429": (429, "rateLimitExceeded", "Too Many Requests"),
    "500": (500, "internalError", "Internal error. Please try again."),
    "503": (503, "backendError", "Service unavailable. Please try again."),
}

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CloudRoutes:
    """Routes over one cloud. ``clock`` says what time it is; ``wake`` tells the driver of a
    change."""

    def __init__(
        self, cloud: CloudProject, clock: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._wake = wake


class ComputeServer(CloudRoutes):
    """Compute's own."""

    def add_routes(self, app: web.Application) -> None:
        migs = PREFIX + "/regions/{region}/instanceGroupManagers"
        one = migs + "/{mig}"
        vm = PREFIX + "/zones/{zone}/instances/{vm}"
        app.router.add_get(migs, self._list_migs)
        app.router.add_get(one, self._get_mig)
        app.router.add_post(one + "/listManagedInstances", self._list_managed)
        app.router.add_post(one + "/createInstances", self._create)
        app.router.add_post(one + "/deleteInstances", self._delete)
        app.router.add_post(one + "/abandonInstances", self._abandon)
        app.router.add_post(one + "/resize", self._resize)
        app.router.add_get(one + "/listErrors", self._list_errors)
        requests = one + "/resizeRequests"
        app.router.add_get(requests, self._list_requests)
        app.router.add_post(requests, self._request)
        app.router.add_get(requests + "/{request}", self._get_request)
        app.router.add_post(requests + "/{request}/cancel", self._cancel_request)
        app.router.add_post(PREFIX + "/regions/{region}/advice/capacity", self._advise)
        app.router.add_get(PREFIX + "/aggregated/instances", self._aggregated)
        batch.add_routes(app)
        Listings(self._cloud, self._clock, self._wire).add_routes(app)
        app.router.add_get(vm, self._get_vm)
        app.router.add_delete(vm, self._delete_vm)
        app.router.add_post(vm + "/stop", self._stop_vm)
        for scope in ("regions", "zones"):
            operation = PREFIX + "/{scope:" + scope + "}/{place}/operations/{operation}"
            app.router.add_get(operation, self._get_operation)
            app.router.add_post(operation + "/wait", self._wait_operation)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Google's error bodies, and the API faults in force."""
        if not request.path.startswith("/compute/"):
            return await handler(request)
        verdict = self._cloud.api_verdict(_region_asked(request), self._clock())
        if verdict.latency_s:
            await asyncio.sleep(verdict.latency_s)
        if verdict.kind in _FAULT_ANSWERS:
            return _refusal(ApiError(*_FAULT_ANSWERS[verdict.kind]))
        answer = await self._answer(request, handler)
        if verdict.kind == "timeout-after-success" and request.transport is not None:
            # The effect stays; the caller never hears of it.
            request.transport.abort()
        return answer

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check_project(request)
            return await handler(request)
        except ApiError as error:
            return _refusal(error)
        except web.HTTPException as error:
            reasons = {404: "notFound", 405: "httpMethodNotAllowed", 413: "uploadTooLarge"}
            reason = reasons.get(error.status, "badRequest")
            return _refusal(ApiError(error.status, reason, error.reason))

    def _check_project(self, request: web.Request) -> None:
        project = request.match_info.get("project")
        if project is not None and project != self._cloud.world.project:
            raise ApiError(404, "notFound", f"The resource 'projects/{project}' was not found")

    def _wire(self, request: web.Request) -> Wire:
        base = f"{request.scheme}://{request.host}/compute/v1"
        return Wire(base, self._cloud.world.project)

    def _mig(self, request: web.Request) -> Mig:
        place = request.match_info
        return self._cloud.mig(place["region"], place["mig"], self._clock())

    def _accepted(self, request: web.Request, operation: Operation) -> web.Response:
        self._wake()
        return web.json_response(self._wire(request).operation(operation, self._clock()))

    # --- groups -----------------------------------------------------------------------------------

    async def _list_migs(self, request: web.Request) -> web.Response:
        region = request.match_info["region"]
        found = self._cloud.migs(region, self._clock())
        matches = parse_filter(request.query.get("filter", ""))
        found = [m for m in found if matches({"name": m.spec.name}, {})]
        page, token = _page(found, request)
        items = [self._wire(request).mig(m) for m in page]
        body: Json = {"kind": "compute#regionInstanceGroupManagerList", "items": items}
        return web.json_response(_with_token(body, token))

    async def _get_mig(self, request: web.Request) -> web.Response:
        return web.json_response(self._wire(request).mig(self._mig(request)))

    async def _list_managed(self, request: web.Request) -> web.Response:
        mig = self._mig(request)
        members = list(mig.members.values())
        token = None
        # A PAGELESS group ignores maxResults and pageToken and answers with everything.
        if mig.spec.list_mode == "PAGINATED":
            members, token = _page(members, request)
        shown = [self._wire(request).managed_instance(m) for m in members]
        return web.json_response(_with_token({"managedInstances": shown}, token))

    async def _list_errors(self, request: web.Request) -> web.Response:
        mig = self._mig(request)
        page, token = _page(list(mig.errors), request)
        items = [self._wire(request).error_record(mig, record) for record in page]
        return web.json_response(_with_token({"items": items}, token))

    async def _create(self, request: web.Request) -> web.Response:
        body = await _body(request)
        instances = body.get("instances")
        if not isinstance(instances, list) or not all(isinstance(i, dict) for i in instances):
            raise invalid("instances", instances, "a list of objects with a name")
        names = [str(i.get("name", "")) for i in instances]
        region, mig = request.match_info["region"], request.match_info["mig"]
        operation = self._cloud.create_instances(
            region, mig, names, _request_id(request), self._clock()
        )
        return self._accepted(request, operation)

    async def _delete(self, request: web.Request) -> web.Response:
        body = await _body(request)
        region, mig = request.match_info["region"], request.match_info["mig"]
        skip = body.get("skipInstancesOnValidationError") is True
        operation = self._cloud.delete_instances(
            region, mig, _urls(body), skip, _request_id(request), self._clock()
        )
        return self._accepted(request, operation)

    async def _abandon(self, request: web.Request) -> web.Response:
        body = await _body(request)
        region, mig = request.match_info["region"], request.match_info["mig"]
        operation = self._cloud.abandon_instances(
            region, mig, _urls(body), _request_id(request), self._clock()
        )
        return self._accepted(request, operation)

    async def _resize(self, request: web.Request) -> web.Response:
        region, mig = request.match_info["region"], request.match_info["mig"]
        size = _number(request, "size", None)
        operation = self._cloud.resize(region, mig, size, _request_id(request), self._clock())
        return self._accepted(request, operation)

    # --- several at once --------------------------------------------------------------------------

    async def _list_requests(self, request: web.Request) -> web.Response:
        mig = self._mig(request)
        page, token = _page(list(mig.requests.values()), request)
        items = [self._wire(request).resize_request(mig, r) for r in page]
        return web.json_response(_with_token({"items": items}, token))

    async def _get_request(self, request: web.Request) -> web.Response:
        mig, place = self._mig(request), request.match_info
        found = self._cloud.request(place["region"], place["mig"], place["request"], self._clock())
        return web.json_response(self._wire(request).resize_request(mig, found))

    async def _request(self, request: web.Request) -> web.Response:
        asked = read_flex_start(await _body(request))
        region, mig = request.match_info["region"], request.match_info["mig"]
        operation = self._cloud.request_instances(
            region, mig, asked, _request_id(request), self._clock()
        )
        return self._accepted(request, operation)

    async def _cancel_request(self, request: web.Request) -> web.Response:
        place = request.match_info
        operation = self._cloud.cancel_request(
            place["region"], place["mig"], place["request"], _request_id(request), self._clock()
        )
        return self._accepted(request, operation)

    async def _advise(self, request: web.Request) -> web.Response:
        region, world = request.match_info["region"], self._cloud.world
        self._cloud.migs(region, self._clock())  # a region that does not exist is not found
        asked = read_advice(
            await _body(request), world.zones_of(region), world.known().machine_types
        )
        room = self._cloud.chances(
            asked.zones, asked.machine_type, asked.spot, asked.size, self._clock()
        )
        return web.json_response(advice_body(asked, room))

    # --- instances --------------------------------------------------------------------------------

    async def _get_vm(self, request: web.Request) -> web.Response:
        vm = self._cloud.vm(request.match_info["zone"], request.match_info["vm"], self._clock())
        return web.json_response(self._wire(request).instance(vm))

    async def _delete_vm(self, request: web.Request) -> web.Response:
        zone, name = request.match_info["zone"], request.match_info["vm"]
        operation = self._cloud.delete_instance(zone, name, _request_id(request), self._clock())
        return self._accepted(request, operation)

    async def _stop_vm(self, request: web.Request) -> web.Response:
        zone, name = request.match_info["zone"], request.match_info["vm"]
        operation = self._cloud.stop_instance(zone, name, _request_id(request), self._clock())
        return self._accepted(request, operation)

    async def _aggregated(self, request: web.Request) -> web.Response:
        matches = parse_filter(request.query.get("filter", ""))
        found = [
            v for v in self._cloud.vms(self._clock()) if matches(_facts(v), dict(v.info.labels))
        ]
        page, token = _page(sorted(found, key=lambda v: (v.info.zone, v.info.id)), request)
        wire = self._wire(request)
        items: Json = {
            f"zones/{zone}": {"instances": [wire.instance(v) for v in vms]}
            for zone, vms in groupby(page, key=lambda v: v.info.zone)
        }
        for zone in sorted(self._cloud.world.known().zones):
            warning = {"code": "NO_RESULTS_ON_PAGE", "message": f"No results for 'zones/{zone}'."}
            items.setdefault(f"zones/{zone}", {"warning": warning})
        body: Json = {"kind": "compute#instanceAggregatedList", "items": items}
        return web.json_response(_with_token(body, token))

    # --- operations -------------------------------------------------------------------------------

    def _operation(self, request: web.Request) -> Operation:
        place = request.match_info
        return self._cloud.operation(f"{place['scope']}/{place['place']}", place["operation"])

    async def _get_operation(self, request: web.Request) -> web.Response:
        operation = self._operation(request)
        return web.json_response(self._wire(request).operation(operation, self._clock()))

    async def _wait_operation(self, request: web.Request) -> web.Response:
        """Blocks until done, at most two minutes; then it answers with what there is."""
        operation = self._operation(request)
        give_up_at = self._clock() + WAIT_MAX_S
        while self._clock() < min(operation.done_at, give_up_at):
            left_s = min(operation.done_at, give_up_at) - self._clock()
            await asyncio.sleep(max(_WAIT_STEP_S, left_s))
        return web.json_response(self._wire(request).operation(operation, self._clock()))


def parse_filter(text: str) -> Callable[[dict[str, str], dict[str, str]], bool]:
    """The part of Google's list filter that is needed: ``key=value`` terms joined by AND."""
    wanted: list[tuple[str, str]] = []
    for term in re.split(r"\s+AND\s+|\)\s*\(|\s*\n\s*", text.strip()):
        bare = term.strip(" ()")
        if not bare:
            continue
        match = re.fullmatch(r'(labels\.[\w-]+|name|status|zone)\s*(?:=|eq)\s*"?([^"\s]*)"?', bare)
        if match is None:
            raise invalid("filter", text, "terms like labels.KEY=VALUE, name=, status= or zone=")
        wanted.append((match[1], match[2]))

    def matches(facts: dict[str, str], labels: dict[str, str]) -> bool:
        return all(
            (
                labels.get(key.removeprefix("labels."))
                if key.startswith("labels.")
                else facts.get(key)
            )
            == value
            for key, value in wanted
        )

    return matches


def _facts(vm: PretendVm) -> dict[str, str]:
    return {"name": vm.info.name, "status": vm.status.value, "zone": vm.info.zone}


def _refusal(error: ApiError) -> web.Response:
    return web.json_response(error_body(error), status=error.status)


def _region_asked(request: web.Request) -> str:
    match = re.search(r"/(regions|zones)/([^/]+)", request.path)
    if match is None:
        return "global"
    return match[2] if match[1] == "regions" else region_of(match[2])


async def _body(request: web.Request) -> Json:
    try:
        body = await request.json()
    except ValueError as error:
        raise ApiError(400, "parseError", f"This API expects JSON: {error}") from error
    if not isinstance(body, dict):
        raise ApiError(400, "parseError", "This API expects a JSON object")
    return body


def _urls(body: Json) -> list[str]:
    urls = body.get("instances", [])
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        raise invalid("instances", urls, "a list of URLs")
    return urls


def _request_id(request: web.Request) -> str | None:
    return request.query.get("requestId")


def _number(request: web.Request, key: str, default: int | None) -> int:
    text = request.query.get(key, "")
    if text == "" and default is not None:
        return default
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise invalid(key, text, "a whole number")
    return int(text)


def _page(items: Sequence[T], request: web.Request) -> tuple[list[T], str | None]:
    """One page, and the token of the next. A token holds the position it continues from."""
    size = _number(request, "maxResults", PAGE_DEFAULT)
    if not 1 <= size <= PAGE_DEFAULT:
        raise invalid("maxResults", size, f"a number from 1 to {PAGE_DEFAULT}")
    start = _position(request.query.get("pageToken", ""))
    end = start + size
    more = base64.urlsafe_b64encode(f"at:{end}".encode()).decode() if end < len(items) else None
    return list(items[start:end]), more


def _position(token: str) -> int:
    if not token:
        return 0
    try:
        text = base64.urlsafe_b64decode(token.encode()).decode()
        return int(text.removeprefix("at:"))
    except (binascii.Error, ValueError) as error:
        raise invalid("pageToken", token, "a token from an earlier page") from error


def _with_token(body: Json, token: str | None) -> Json:
    return body if token is None else {**body, "nextPageToken": token}
