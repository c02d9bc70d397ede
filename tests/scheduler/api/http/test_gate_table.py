"""Every route × who calls × whose it is: access.txt beside this file has the status of each.

The rows come from the app's own routes, so that a new route is in the table or fails here. After a
change that is meant: run this test with ZEN_GOLDEN=write in its environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from core.access import ALL_TENANTS, ROLES
from core.changes import DeadLetter
from core.tenants import Tenant
from scheduler.api.examples import requests
from scheduler.api.http.app import create_app, endpoints
from scheduler.api.http.endpoint import Endpoint
from scheduler.api.services import Services
from stores.artifacts import ArtifactPath, File, Manifest, write_manifest
from stores.base import LogPath
from stores.code_trees import Tree, TreeFile, compress, encode_pack, encode_tree, hash_of, tree_id
from stores.local import LocalStore
from tests.access import OWNER, bearer, known
from tests.config.test_load import MINIMAL
from tests.scheduler.api.fakes import NOW, TO_RUNNING, House
from tests.scheduler.operations.test_live_config import House as Configured

GOLDEN = Path(__file__).with_name("access.txt")
OWN, FOREIGN = "own", "foreign"
TENANT_OF = {
    **dict.fromkeys(("viewer", "submitter", "member"), OWN),
    **dict.fromkeys(("operator", "admin"), ALL_TENANTS),
}
"""Role → tenant of its grant."""
PRINCIPALS = ("none", *TENANT_OF)
OPEN = {"/api/v1/health", "/api/v1/ready", "/health"}
"""What answers without a key."""
SIGN_IN = {"/sign-in", "/sign-in/start", "/sign-in/callback", "/sign-out"}
"""Public pages: what they answer is their own affair (test_sign_in.py)."""
DOCUMENTATION = {"/docs", "/openapi.json"}
LISTED = encode_tree(Tree((TreeFile("a", False, 1, (hash_of(b"1"),)),)))
BINARY = {"code list": compress(LISTED), "code pack": encode_pack([b"1"])}
"""Bodies that are not JSON, by their name among the examples."""
KEYS = {who: known(f"{who:x<12}"[:12], (TENANT_OF[who], who)) for who in TENANT_OF}


@dataclass(frozen=True, slots=True)
class Case:
    """Whose thing a request is about: the caller is user ada of tenant own."""

    tenant_id: str
    user_id: str

    @property
    def job_id(self) -> str:
        return f"job-of-{self.user_id}"


CASES = (Case(OWN, "ada"), Case(OWN, "bob"), Case(FOREIGN, "eve"))


async def made(tmp_path: Path) -> Services:
    """A service with a job, a tenant, a log and a file for each case."""
    files = LocalStore(tmp_path)
    house = House(logs=files, files=files, keys=tuple(key for _, key in KEYS.values()))
    async with house.client() as client:
        for case in CASES:
            house.put_tenant(Tenant(case.tenant_id))
            body = {"command": ["a"], "job_id": case.job_id, "user_id": case.user_id}
            body |= {"tenant_id": case.tenant_id, "group": f"group-of-{case.user_id}"}
            assert (await client.post("/api/v1/jobs", json=body)).status_code == 201
            house.move(case.job_id, *TO_RUNNING)
            named = (case.tenant_id, case.user_id, case.job_id, 1)
            await files.put(ArtifactPath(*named).file("a"), b"")
            await write_manifest(files, ArtifactPath(*named), Manifest((File("a", 0, "0" * 64),)))
            async with files.writer(LogPath(*named)) as writer:
                await writer.write(b"hello")
    house.write(DeadLetter("7", "submit", b"{}", {}, "no command", NOW))
    configured = Configured()
    configured.start(MINIMAL)
    await configured.pass_s(1)
    return replace(house.services(), config=configured.desks[0].live)


def asked(endpoint: Endpoint, case: Case) -> httpx.Request:
    """A request that would be served to somebody who may do everything."""
    words = {
        "job_id": case.job_id,
        "user_id": case.user_id,
        "group": f"group-of-{case.user_id}",
        "tenant_id": case.tenant_id,
        "key_id": "viewerxxxxxx",
        "letter_id": "7",
        "version": "1",
        "name": f"SECRET_{case.user_id}",
        "session_id": "none",
        "tree_id": tree_id(LISTED),
    }
    path = re.sub(r"{(\w+)}", lambda found: words[found[1]], endpoint.path)
    params = {param.name: _param(param.name, case) for param in endpoint.params}
    given = {name: value for name, value in params.items() if value}
    at = f"http://zen{path}"
    if endpoint.body is not None and endpoint.body.only:
        kind = {"content-type": endpoint.body.only[0]}
        binary = BINARY[endpoint.body.examples]
        return httpx.Request(endpoint.method, at, params=given, content=binary, headers=kind)
    body = _body(endpoint, case) if endpoint.body is not None else None
    return httpx.Request(endpoint.method, at, params=given, json=body)


def _param(name: str, case: Case) -> str:
    of_grants = {"principal": "key:viewerxxxxxx", "role": "viewer"}
    return {
        "tenant_id": case.tenant_id,
        "tenant": case.tenant_id,
        "path": "a",
        **of_grants,
    }.get(name, "")


def _body(endpoint: Endpoint, case: Case) -> Mapping[str, object]:
    assert endpoint.body is not None
    body: dict[str, object] = dict(next(iter(requests(endpoint.body.examples).values())))
    for name in ("tenant_id", "id"):
        if name in body or (name == "tenant_id" and endpoint.path == "/api/v1/jobs"):
            body[name] = case.tenant_id if name == "tenant_id" else f"new-{case.user_id}"
    if "job_ids" in body:
        body |= {"user_id": case.user_id, "job_ids": [case.job_id]}
    elif "user_id" in body:
        body["user_id"] = case.user_id
    if "version" in body:
        body["version"] = 1
    return body


async def statuses(endpoint: Endpoint, tmp_path: Path) -> dict[str, list[int]]:
    """Principal → the status for each case; each request finds the service as it was made."""
    found: dict[str, list[int]] = {}
    for number, who in enumerate(PRINCIPALS):
        headers = {} if who == "none" else bearer(KEYS[who][0])
        services = await made(tmp_path / str(number))
        async with _client(services) as client:
            sent = [asked(endpoint, case) for case in CASES]
            for request in sent:
                request.headers.update(headers)
            found[who] = [(await client.send(request)).status_code for request in sent]
    return found


def _client(services: Services, key: str | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(services))
    headers = {} if key is None else bearer(key)
    return httpx.AsyncClient(transport=transport, base_url="http://zen", headers=headers)


def lines(table: Mapping[str, Mapping[str, list[int]]]) -> list[str]:
    """One for each route: one column for each principal, own/colleague's/foreign where they
    differ."""
    heads = ["route".ljust(50), *(who.ljust(11) for who in PRINCIPALS)]
    found = [" ".join(heads).rstrip()]
    for route, row in sorted(table.items()):
        cells = [
            "/".join(map(str, row[who] if len({*row[who]}) > 1 else row[who][:1])) for who in row
        ]
        found.append(" ".join([route.ljust(50), *(cell.ljust(11) for cell in cells)]).rstrip())
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_table_is_as_it_was_agreed(tmp_path: Path) -> None:
    """A change of this file shows in a review who may do more than before, or less."""
    services = await made(tmp_path / "routes")
    table = {}
    for number, endpoint in enumerate(endpoints(services)):
        route = f"{endpoint.method} {endpoint.path}"
        table[route] = await statuses(endpoint, tmp_path / f"r{number}")
    text = "\n".join(lines(table)) + "\n"
    if os.environ.get("ZEN_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


async def test_every_route_asks_for_a_key(tmp_path: Path) -> None:
    """Each route of the app, whatever made it, with each of its methods: 401 without a key and with
    a wrong one, but for health and ready."""
    services = await made(tmp_path)
    app = create_app(services)
    found = []
    async with _client(services) as client:
        for route in app.routes:
            assert isinstance(route, Route), route
            if route.path in SIGN_IN:
                continue
            path = re.sub(r"{(\w+)}", "x1", route.path)
            for method in sorted(route.methods or ()):
                plain = await client.request(method, path)
                wrong = await client.request(method, path, headers=bearer(OWNER[:-4] + "ffff"))
                wanted = {200} if route.path in OPEN else {401, 429}
                if plain.status_code not in wanted - {429} or wrong.status_code not in wanted:
                    found.append((method, route.path, plain.status_code, wrong.status_code))
    assert found == []


async def test_every_route_is_an_endpoint(tmp_path: Path) -> None:
    """So each has a right, and is in the table; the documentation is gated beside them."""
    services = await made(tmp_path)
    public = {endpoint.path for endpoint in endpoints(services) if endpoint.right is None}
    assert public == OPEN | SIGN_IN
    served = {route.path for route in create_app(services).routes if isinstance(route, Route)}
    assert served - {endpoint.path for endpoint in endpoints(services)} == DOCUMENTATION
    assert set(TENANT_OF) == set(ROLES)
