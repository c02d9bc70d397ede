"""The instance metadata protocol, one server on a port of its own per VM: a process on the pretend
VM asks ``GCE_METADATA_HOST`` who it is, exactly as it would on a real one."""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from localbus.browsers import comes_from_stranger
from sim.cloud.access_tokens import PretendTokens
from sim.cloud.identity_issuer import IdentityIssuer, service_account
from sim.cloud.model import VmInfo

MOUNT: Final = "/computeMetadata"
ROOT: Final = "computeMetadata/v1"
IDENTITY: Final = "instance/service-accounts/default/identity"
ACCESS: Final = "instance/service-accounts/{account}/token"
UNIVERSE: Final = "pretend.invalid"
WAIT_DEFAULT_S: Final = 300.0
WAIT_MAX_S: Final = 3600.0
_HEADERS: Final = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Tree = dict[str, "Tree | str"]


class VmMetadata:
    """What one VM can read about itself, and the request to know when it changes."""

    def __init__(
        self, vm: VmInfo, project: str, project_number: int, account: str | None = None
    ) -> None:
        self.vm = vm
        self.account = account or service_account(project_number)
        self._changed = asyncio.Event()
        home = f"projects/{project_number}"
        about: Tree = {
            "aliases": "default\n",
            "email": self.account,
            "scopes": "https://www.googleapis.com/auth/cloud-platform\n",
        }
        self._instance: Tree = {
            "attributes": dict(vm.metadata),
            "hostname": f"{vm.name}.{vm.zone}.c.{project}.internal",
            "id": str(vm.id),
            "machine-type": f"{home}/machineTypes/{vm.machine_type}",
            "maintenance-event": "NONE",
            "name": vm.name,
            # All pretend VMs are processes of one machine.
            "network-interfaces": {"0": {"ip": "127.0.0.1"}},
            "preempted": "FALSE",
            "scheduling": {
                "automatic-restart": "FALSE",
                "on-host-maintenance": "TERMINATE",
                "preemptible": "TRUE" if vm.spot else "FALSE",
            },
            "service-accounts": {"default": about, self.account: about},
            "zone": f"{home}/zones/{vm.zone}",
        }
        numeric = str(project_number)
        self.tree: Tree = {
            "instance": self._instance,
            "project": {"attributes": {}, "numeric-project-id": numeric, "project-id": project},
        }
        if account is not None:
            # In a universe of its own Google's library asks none of Google's other services.
            self.tree["universe"] = {"universe-domain": UNIVERSE}

    def preempt(self) -> None:
        self._change("preempted", "TRUE")

    def maintain(self) -> None:
        self._change("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")

    def _change(self, key: str, value: str) -> None:
        self._instance[key] = value
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def change(self) -> None:
        await self._changed.wait()


class MetadataServer:
    """Serves one VM's metadata on a loopback port, and identity tokens of an issuer if it has
    one."""

    def __init__(
        self,
        metadata: VmMetadata,
        issuer: IdentityIssuer | None = None,
        tokens: PretendTokens | None = None,
    ) -> None:
        self.metadata = metadata
        self._issuer, self._tokens = issuer, tokens
        self._runner = web.AppRunner(self._app(""), access_log=None, shutdown_timeout=0.1)

    def mount(self, app: web.Application) -> None:
        """Beside other services of the cloud, which have the root of their port."""
        app.add_subapp(MOUNT, self._app(MOUNT))
        app.router.add_get("/", self._ping)

    def _app(self, mounted: str) -> web.Application:
        app, root = web.Application(middlewares=[_flavor]), f"/{ROOT}".removeprefix(mounted)
        app.router.add_get(f"{root}/{IDENTITY}", self._identity)
        app.router.add_get(f"{root}/" + ACCESS, self._token)
        app.router.add_get("/{path:.*}", self._get)
        return app

    async def start(self, host: str = "127.0.0.1") -> str:
        """Returns host:port, the value for GCE_METADATA_HOST."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, 0).start()
        port = self._runner.addresses[0][1]
        return f"{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/")
        parts = [part for part in path.split("/") if part]
        node = _find({"computeMetadata": {"v1": self.metadata.tree}}, parts)
        if isinstance(node, dict) and path and not path.endswith("/"):
            query = f"?{request.query_string}" if request.query_string else ""
            raise web.HTTPMovedPermanently(f"/{path}/{query}")
        if _flag(request, "wait_for_change"):
            node = await self._wait(node, parts, request)
        body, kind = _render(node, request)
        return web.Response(text=body, content_type=kind, headers={"ETag": _etag(node)})

    async def _ping(self, _: web.Request) -> web.StreamResponse:
        """What a library looks at to find out where it is."""
        return web.Response(text="computeMetadata/\n", headers=_HEADERS)

    async def _token(self, request: web.Request) -> web.StreamResponse:
        known = request.match_info["account"] in ("default", self.metadata.account)
        if self._tokens is None or not known:
            raise web.HTTPNotFound(text="this VM has no service account")
        return web.json_response(self._tokens.own(self.metadata.account))

    async def _identity(self, request: web.Request) -> web.StreamResponse:
        if self._issuer is None:
            raise web.HTTPNotFound(text="this VM has no service account")
        audience, form = request.query.get("audience", ""), request.query.get("format", "standard")
        if not audience:
            raise web.HTTPBadRequest(text="non-empty audience parameter required")
        if form not in ("standard", "full"):
            raise web.HTTPBadRequest(text=f"format: expected standard or full, got {form!r}")
        token = await self._issuer.token(self.metadata.vm, audience, full=form == "full")
        return web.Response(text=token, content_type="text/html")

    async def _wait(self, node: Tree | str, parts: list[str], request: web.Request) -> Tree | str:
        """Long poll. Answers at once when the caller's last_etag is not the current one; after
        timeout_sec it answers with the value as it is."""
        last = request.query.get("last_etag")
        seen = _etag(node) if last is None else last
        loop = asyncio.get_running_loop()
        end = loop.time() + _seconds(request)
        while _etag(node) == seen and loop.time() < end:
            try:
                await asyncio.wait_for(self.metadata.change(), end - loop.time())
            except TimeoutError:
                break
            node = _find({"computeMetadata": {"v1": self.metadata.tree}}, parts)
        return node


@web.middleware
async def _flavor(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The header proves that the caller meant the metadata server: a page in a browser or a
    forwarded request cannot set it."""
    if comes_from_stranger(request):
        return _problem(403, "Closed to this user")
    if request.headers.get("Metadata-Flavor") != "Google":
        return _problem(403, "Missing required header: Metadata-Flavor: Google")
    if "X-Forwarded-For" in request.headers:
        return _problem(403, "Requests with X-Forwarded-For are refused")
    try:
        answer = await handler(request)
    except web.HTTPMovedPermanently as moved:
        moved.headers.update(_HEADERS)
        raise
    except web.HTTPException as error:
        return _problem(error.status, error.text or error.reason)
    answer.headers.update(_HEADERS)
    return answer


def _problem(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers=_HEADERS)


def _find(tree: Tree, parts: list[str]) -> Tree | str:
    node: Tree | str = tree
    for part in parts:
        if not isinstance(node, dict) or part not in node:
            raise web.HTTPNotFound(text=f"/{'/'.join(parts)} was not found")
        node = node[part]
    return node


def _flag(request: web.Request, key: str) -> bool:
    return request.query.get(key, "").lower() == "true"


def _seconds(request: web.Request) -> float:
    text = request.query.get("timeout_sec", "")
    if not text:
        return WAIT_DEFAULT_S
    if not re.fullmatch(r"\d{1,6}", text):
        raise web.HTTPBadRequest(text=f"timeout_sec: expected whole seconds, got {text!r}")
    return min(float(text), WAIT_MAX_S)


def _render(node: Tree | str, request: web.Request) -> tuple[str, str]:
    if _flag(request, "recursive") or request.query.get("alt") == "json":
        return json.dumps(_camel(node)), "application/json"
    if isinstance(node, str):
        return node, "application/text"
    lines = (f"{key}/" if isinstance(value, dict) else key for key, value in sorted(node.items()))
    return "".join(f"{line}\n" for line in lines), "application/text"


def _camel(node: Tree | str, key: str = "") -> object:
    """Recursive answers use camelCase for Google's own names; attribute names stay as set."""
    if isinstance(node, str):
        return int(node) if key in ("id", "numeric-project-id") else node
    if key == "attributes":
        return node
    return {
        re.sub(r"-(\w)", lambda m: m[1].upper(), name): _camel(value, name)
        for name, value in node.items()
    }


def _etag(node: Tree | str) -> str:
    text = json.dumps(node, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
