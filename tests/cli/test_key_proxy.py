"""The proxy that adds a key: who may use it, and what it passes on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from cli.key_proxy import KeyProxy, ProxyTarget, tenant_for
from core.api_keys import key_text
from core.errors import ZenError

ROOT = Path(__file__).parents[2]
KEY = key_text("proxied00000", bytes(32))


@dataclass
class Upstream:
    """An API that remembers what came, and answers in pieces when it is told to."""

    seen: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        if request.path == "/api/v1/whoami":
            rights = [{"right": "jobs.read", "tenants": ["ml"]}]
            return web.json_response({"name": "n", "principal": "key:n", "rights": rights})
        if request.path == "/follow":
            told = web.StreamResponse()
            await told.prepare(request)
            await told.write(b"first\n")
            await self.go_on.wait()
            await told.write(b"second\n")
            return told
        headers = {
            "Set-Cookie": "a=b",
            "Access-Control-Allow-Origin": "*",
            "X-Request-Id": "r1",
            "WWW-Authenticate": "Basic",
        }
        return web.json_response({"path": request.raw_path}, status=418, headers=headers)


@asynccontextmanager
async def serving(handle: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
async def client(upstream: Upstream) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(upstream.handle) as api:
        proxy = KeyProxy(ProxyTarget(api, KEY, "ml"), "127.0.0.1")
        await proxy.open()
        async with (
            serving(proxy.handle) as at,
            httpx.AsyncClient(base_url=at, trust_env=False) as made,
        ):
            yield made
        await proxy.close()


async def test_requests_get_the_key_and_the_tenant(
    client: httpx.AsyncClient, upstream: Upstream
) -> None:
    """Whatever credentials and tenant the client sends itself."""
    own = {"authorization": "Bearer mine", "cookie": "s=1", "x-zen-tenant": "other"}
    own |= {"x-goog-iap-jwt-assertion": "a.b.c", "content-type": "application/json"}
    answer = await client.post("/api/v1/jobs?a=%2Fb&a=c", content=b'{"x": 1}', headers=own)
    (seen,) = upstream.seen
    assert seen.headers.getall("authorization") == [f"Bearer {KEY}"]
    assert seen.headers.getall("x-zen-tenant") == ["ml"]
    assert not {"cookie", "x-goog-iap-jwt-assertion"} & {name.lower() for name in seen.headers}
    assert (upstream.bodies, seen.content_type) == ([b'{"x": 1}'], "application/json")
    assert (answer.status_code, answer.json()) == (418, {"path": "/api/v1/jobs?a=%2Fb&a=c"})


async def test_answers_lose_what_is_for_browsers(client: httpx.AsyncClient) -> None:
    """No cookie, no leave for other sites, no question for a password."""
    answer = await client.get("/")
    assert answer.headers["x-request-id"] == "r1"
    lost = {"set-cookie", "access-control-allow-origin", "www-authenticate"}
    assert not lost & set(answer.headers)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"host": "rebound.evil.example"}, 421),
        ({"host": "rebound.evil.example:8081", "origin": "http://rebound.evil.example:8081"}, 421),
        ({"sec-fetch-site": "none"}, 418),
        ({"sec-fetch-site": "same-origin"}, 418),
        ({}, 418),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_web_pages_cannot_use_it(
    client: httpx.AsyncClient,
    upstream: Upstream,
    headers: dict[str, str],
    status: int,
    method: str,
) -> None:
    """Not even to read; what is refused does not reach the API."""
    answer = await client.request(method, "/api/v1/jobs", headers=headers)
    assert answer.status_code == status
    assert len(upstream.seen) == (status == 418)
    assert "access-control-allow-origin" not in answer.headers


async def test_a_stream_arrives_piece_by_piece(
    client: httpx.AsyncClient, upstream: Upstream
) -> None:
    """Who follows a log sees a line when it is there, not when the log ends."""
    async with client.stream("GET", "/follow") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "first"
        upstream.go_on.set()
        assert await anext(lines) == "second"


async def test_an_absolute_address_goes_to_the_api_too(
    client: httpx.AsyncClient, upstream: Upstream
) -> None:
    """It is no open proxy: the key is never sent elsewhere."""
    at = client.base_url
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(
        b"GET http://evil.example/x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    answer = await reader.read()
    writer.close()
    assert b"418" in answer.split(b"\r\n")[0]
    assert upstream.seen[0].raw_path == "/x"


async def test_an_api_that_is_away_is_told() -> None:
    """In the shape of its errors."""
    proxy = KeyProxy(ProxyTarget("http://127.0.0.1:9", KEY, "ml"), "127.0.0.1")
    await proxy.open()
    async with serving(proxy.handle) as at, httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(at)
    await proxy.close()
    assert (answer.status_code, answer.json()["code"]) == (502, "unreachable")


def test_a_key_of_several_tenants_needs_a_choice() -> None:
    """One proxy, one tenant."""

    def me(*tenants: str) -> dict[str, object]:
        return {"rights": [{"right": "jobs.read", "tenants": list(tenants)}]}

    assert tenant_for(me("ml"), None) == "ml"
    assert tenant_for(me("ml", "vision"), "vision") == "vision"
    assert tenant_for(me("*"), "vision") == "vision"
    for several in (me("*"), me("ml", "vision"), me()):
        with pytest.raises(ZenError, match="--tenant"):
            tenant_for(several, None)
    with pytest.raises(ZenError, match="no role for vision"):
        tenant_for(me("ml"), "vision")


@pytest.mark.slow
async def test_the_command_runs_in_the_foreground(upstream: Upstream, tmp_path: Path) -> None:
    """It says who may use it, and ends when it is interrupted."""
    file = tmp_path / "one.key"
    file.write_text(KEY)
    async with serving(upstream.handle) as api:
        words = ["proxy", "--listen", "127.0.0.1:0", "--key", str(file), "--api", api]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli", *words),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "ZEN_HOME": str(tmp_path)},
        )
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert "key:n), tenant ml" in line
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(line.split()[0])).status_code == 418
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == 0
    assert "any user of this machine may use it" in err.decode()


@pytest.mark.slow
def test_other_machines_are_refused_unless_forced(tmp_path: Path) -> None:
    """The key would be everybody's in the network."""
    words = ["proxy", "--listen", "0.0.0.0:0", "--key", str(tmp_path / "no.key")]
    environ = {**os.environ, "ZEN_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "cli", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )
    assert done.returncode == 1
    assert "no loopback address" in done.stderr
    assert json.dumps(done.stdout) == '""'
