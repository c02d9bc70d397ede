"""Code of jobs over HTTP: who may send it, and what a job may name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from scheduler.api.routes import code
from scheduler.uploads.code_trees import AT_ONCE
from stores.code_trees import (
    PACK_BODY_MAX,
    Tree,
    TreeFile,
    compress,
    encode_pack,
    encode_tree,
    hash_of,
    tree_id,
)
from stores.local import LocalStore
from tests.access import bearer, known
from tests.scheduler.api.fakes import House, assert_error

BINARY = {"content-type": "application/octet-stream"}
DATA = b"print('hello')"
LISTED = encode_tree(Tree((TreeFile("train.py", False, len(DATA), (hash_of(DATA),)),)))
CODE = tree_id(LISTED)
TREES, PACKS = f"/api/v1/code/trees/{CODE}", "/api/v1/code/packs"
MEMBER, MEMBER_KEY = known("member000000", ("default", "submitter"))
FOREIGN, FOREIGN_KEY = known("foreign00000", ("other", "member"), user_id="fay")
VIEWER, VIEWER_KEY = known("viewer000000", ("default", "viewer"), user_id="vic")
JOB = {"command": ["python3", "train.py"], "gpu_type": "l4", "code": CODE}


@pytest.fixture
def house(tmp_path: Path) -> House:
    keys = (MEMBER_KEY, FOREIGN_KEY, VIEWER_KEY)
    return House(keys=keys, files=LocalStore(tmp_path), door={"create_tenants": True})


async def put(client: httpx.AsyncClient, key: str, body: bytes = b"") -> httpx.Response:
    sent = body or compress(LISTED)
    return await client.put(TREES, content=sent, headers={**bearer(key), **BINARY})


async def pack(client: httpx.AsyncClient, key: str, body: bytes = b"") -> httpx.Response:
    sent = body or encode_pack([DATA])
    return await client.post(PACKS, content=sent, headers={**bearer(key), **BINARY})


async def test_code_is_sent_and_a_job_is_given_it(house: House) -> None:
    async with house.client() as client:
        as_member = bearer(MEMBER)
        assert_error(await client.get(TREES, headers=as_member), 404, "not_found")
        refused = await client.post("/api/v1/jobs", json=JOB, headers=as_member)
        assert_error(refused, 422, "bad_input")
        assert "code that tenant default has sent" in refused.text
        assert (await put(client, MEMBER)).json()["missing"] == [[0, 0]]
        assert (await pack(client, MEMBER)).json() == {"chunks": 1, "new": 1}
        assert (await pack(client, MEMBER)).json() == {"chunks": 1, "new": 0}
        assert (await put(client, MEMBER)).json()["missing"] == []
        found = (await client.get(TREES, headers=as_member)).json()
        assert (found["files"], found["bytes"]) == (1, len(DATA))
        made = await client.post("/api/v1/jobs", json=JOB, headers=as_member)
        assert made.status_code == 201, made.text
        job = await client.get(f"/api/v1/jobs/{made.json()['job_id']}", headers=as_member)
        assert job.json()["code"] == CODE
        used = (await client.get("/api/v1/code", headers=as_member)).json()
        assert (used["trees"], used["packs"], used["tree_files_max"]) == (1, 1, 100_000)


async def test_another_tenant_has_none_of_it(house: House) -> None:
    """It can neither name it, nor see that it is there, nor send for others."""
    async with house.client() as client:
        await pack(client, MEMBER)
        await put(client, MEMBER)
        assert_error(await client.get(TREES, headers=bearer(FOREIGN)), 404, "not_found")
        assert (await put(client, FOREIGN)).json()["missing"] == [[0, 0]]
        refused = await client.post("/api/v1/jobs", json=JOB, headers=bearer(FOREIGN))
        assert_error(refused, 422, "bad_input")
        for path in (f"{TREES}?tenant_id=default", "/api/v1/code?tenant_id=default"):
            assert_error(await client.get(path, headers=bearer(FOREIGN)), 403, "forbidden")
        into = await client.post(
            f"{PACKS}?tenant_id=default",
            content=encode_pack([DATA]),
            headers={**bearer(FOREIGN), **BINARY},
        )
        assert_error(into, 403, "forbidden")
        for answer in (await pack(client, VIEWER), await put(client, VIEWER)):
            assert_error(answer, 403, "forbidden")


async def test_other_bodies_are_refused(house: House) -> None:
    async with house.client() as client:
        for answer in (await pack(client, MEMBER, b"x"), await put(client, MEMBER, b"x")):
            assert_error(answer, 422, "bad_input")
        as_json = await client.post(PACKS, json={}, headers=bearer(MEMBER))
        assert_error(as_json, 415, "unsupported_media_type")
        assert_error(await pack(client, MEMBER, bytes(5 * 1024 * 1024)), 413, "too_large")
        assert_error(await put(client, MEMBER, bytes(13 * 1024 * 1024)), 413, "too_large")
        bad = await client.get("/api/v1/code/trees/..%2F..%2Fx", headers=bearer(MEMBER))
        assert bad.status_code in (404, 422)
        assert_error(
            await client.get("/api/v1/code/trees/ABC", headers=bearer(MEMBER)), 422, "bad_input"
        )


async def test_a_service_without_a_store_takes_none() -> None:
    async with House(keys=(MEMBER_KEY,)).client() as client:
        assert_error(await pack(client, MEMBER), 404, "not_found")


class Slow:
    """A body whose end is long in coming."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def sent(self) -> AsyncIterator[bytes]:
        body = encode_pack([DATA])
        yield body[:1]
        self.begun.set()
        await self.go_on.wait()
        yield body[1:]


@asynccontextmanager
async def slow_clients(client: httpx.AsyncClient, count: int) -> AsyncIterator[None]:
    bodies = [Slow() for _ in range(count)]
    headers = {**bearer(MEMBER), **BINARY}
    sending = [
        asyncio.create_task(client.post(PACKS, content=body.sent(), headers=headers))
        for body in bodies
    ]
    async with asyncio.timeout(60):
        for body in bodies:
            await body.begun.wait()
    yield
    for body in bodies:
        body.go_on.set()
    assert {answer.status_code for answer in await asyncio.gather(*sending)} == {200}


async def test_slow_clients_hold_up_nobody(house: House) -> None:
    async with house.client() as client, slow_clients(client, AT_ONCE):
        answer = await asyncio.wait_for(pack(client, MEMBER), 60)
        assert answer.json() == {"chunks": 1, "new": 1}
        answer = await asyncio.wait_for(put(client, MEMBER), 60)
        assert answer.json()["missing"] == []


async def test_bodies_in_memory_have_a_bound(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one tenant, so that others still can send, and of all."""
    monkeypatch.setattr(code, "TENANT_HELD_MAX", PACK_BODY_MAX)
    async with house.client() as client:
        async with slow_clients(client, 1):
            assert_error(await pack(client, MEMBER), 503, "busy")
            assert (await pack(client, FOREIGN)).status_code == 200
            monkeypatch.setattr(code, "HELD_MAX", PACK_BODY_MAX)
            assert_error(await pack(client, FOREIGN), 503, "busy")
        assert (await pack(client, MEMBER)).status_code == 200
