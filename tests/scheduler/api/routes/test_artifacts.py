"""Stored outputs over HTTP."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from core.errors import Forbidden
from core.job import JobEvent
from scheduler.api import manifests
from scheduler.api.http.problems import BadRange
from scheduler.api.routes.artifacts import read_range
from stores.artifacts import ArtifactPath, File, Manifest, Skipped, write_manifest
from stores.base import StoreUnavailable
from stores.local import LocalStore
from tests.scheduler.api.fakes import TO_RUNNING, House, assert_error

URL = "/api/v1/jobs/mine/artifacts"
FILES = {"a.txt": b"alpha\n", "deep/b.bin": bytes(range(256)) * 8, "empty": b"", "ü x": b"u"}


class Counting(LocalStore):
    """A store that counts, and may be away."""

    gets = 0
    block: Exception | None = None

    async def get(self, key: str, offset: int, limit: int) -> bytes | None:
        self.gets += 1
        if self.block is not None:
            raise self.block
        return await super().get(key, offset, limit)


async def stored(store: LocalStore, attempt: int, files: dict[str, bytes]) -> None:
    path = ArtifactPath("acme", "ada", "mine", attempt)
    rows = []
    for name, data in sorted(files.items()):
        await store.put(path.file(name), data)
        rows.append(File(name, len(data), hashlib.sha256(data).hexdigest()))
    await write_manifest(store, path, Manifest(tuple(rows), (Skipped("l", "a link"),)))


async def house_with(store: LocalStore, *events: JobEvent) -> House:
    house = House(files=store)
    body = {"command": ["a"], "job_id": "mine", "user_id": "ada", "tenant_id": "acme"}
    async with house.client() as client:
        await client.post("/api/v1/jobs", json=body)
    house.move("mine", *TO_RUNNING, *events)
    return house


async def test_list_in_pages(tmp_path: Path) -> None:
    """All files once, by path, with size and checksum; what was not stored is named."""
    store = LocalStore(tmp_path)
    await stored(store, 1, FILES)
    house = await house_with(store, JobEvent.EXITED_OK)
    async with house.client() as client:
        page = (await client.get(URL)).json()
        first = (await client.get(f"{URL}?limit=3")).json()
        token = {"limit": 3, "page_token": first["next_page_token"]}
        rest = (await client.get(URL, params=token)).json()
    assert [row["path"] for row in page["artifacts"]] == sorted(FILES)
    assert (page["attempt"], page["total"], page["bytes"]) == (1, 4, 2055)
    assert page["next_page_token"] is None
    assert page["skipped"] == [{"path": "l", "why": "a link"}]
    assert first["artifacts"] + rest["artifacts"] == page["artifacts"]
    assert rest["next_page_token"] is None
    assert page["artifacts"][0]["sha256"] == hashlib.sha256(b"alpha\n").hexdigest()


async def test_files_come_whole_or_in_part(tmp_path: Path) -> None:
    """Every byte, as an attachment that no browser runs; a range goes on after a break."""
    store = LocalStore(tmp_path)
    await stored(store, 1, FILES)
    house = await house_with(store, JobEvent.EXITED_OK)
    async with house.client() as client:
        for name, data in FILES.items():
            answer = await client.get(f"{URL}/file", params={"path": name})
            assert (answer.status_code, answer.content) == (200, data)
            assert answer.headers["content-length"] == str(len(data))
            assert answer.headers["zen-sha256"] == hashlib.sha256(data).hexdigest()
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-disposition"].startswith("attachment")
        part = await client.get(
            f"{URL}/file", params={"path": "deep/b.bin"}, headers={"Range": "bytes=2040-"}
        )
        assert (part.status_code, part.content) == (206, FILES["deep/b.bin"][2040:])
        assert part.headers["content-range"] == "bytes 2040-2047/2048"
        beyond = await client.get(
            f"{URL}/file", params={"path": "a.txt"}, headers={"Range": "bytes=6-"}
        )
        assert_error(beyond, 416, "bad_range")
        assert beyond.headers["content-range"] == "bytes */6"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, (0, 9)),
        ("bytes=0-3", (0, 3)),
        ("bytes=4-", (4, 9)),
        ("bytes=-3", (7, 9)),
        ("bytes=-30", (0, 9)),
        ("bytes=5-500", (5, 9)),
        ("bytes=-", (0, 9)),
        ("bytes=1-2,4-5", (0, 9)),
        ("lines=1-2", (0, 9)),
    ],
)
def test_ranges(header: str | None, expected: tuple[int, int]) -> None:
    """One range is served, anything else is as if nothing were asked."""
    assert read_range(header, 10) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=5-4", "bytes=-0"])
def test_ranges_that_are_not_there(header: str) -> None:
    """Bytes beyond the file are refused."""
    with pytest.raises(BadRange):
        read_range(header, 10)


NOT_THERE = (
    *("../manifest.json", "/etc/passwd", "deep", "deep/", "A.TXT", "./a.txt", "deep/../a.txt"),
    *("%61.txt", "a.txt/", "..", "files/a.txt"),
)


async def test_only_what_the_manifest_names(tmp_path: Path) -> None:
    """No path leads anywhere: a name is in the manifest, letter by letter, or it is not there."""
    store = LocalStore(tmp_path)
    await stored(store, 1, FILES)
    house = await house_with(store, JobEvent.EXITED_OK)
    async with house.client() as client:
        for path in NOT_THERE:
            answer = await client.get(f"{URL}/file", params={"path": path})
            assert_error(answer, 404, "not_found")
        assert_error(await client.get(f"{URL}/file"), 422, "bad_input")


async def test_other_tenants_see_nothing(tmp_path: Path) -> None:
    """Neither the list nor a file, nor that there is such a job."""
    store = LocalStore(tmp_path)
    await stored(store, 1, FILES)
    house = await house_with(store, JobEvent.EXITED_OK)
    async with house.client() as client:
        for url in (URL, f"{URL}/file?path=a.txt"):
            mark = "&" if "?" in url else "?"
            assert (await client.get(f"{url}{mark}tenant_id=acme")).status_code == 200
            assert_error(await client.get(f"{url}{mark}tenant_id=rival"), 404, "not_found")
            assert_error(await client.get(f"{url}{mark}user_id=eve"), 404, "not_found")


async def test_newest_attempt_that_stored_something(tmp_path: Path) -> None:
    """Without an attempt it is the newest one with a manifest; half-stored ones do not count."""
    store = LocalStore(tmp_path)
    await stored(store, 1, {"old": b"1"})
    again = (JobEvent.VM_LOST, *TO_RUNNING, JobEvent.VM_LOST, *TO_RUNNING)
    house = await house_with(store, *again)
    await store.put(ArtifactPath("acme", "ada", "mine", 2).file("half"), b"x")
    async with house.client() as client:
        assert (await client.get(URL)).json()["attempt"] == 1
        assert (await client.get(f"{URL}?attempt=2")).json()["attempt"] is None
        assert_error(await client.get(f"{URL}?attempt=4"), 422, "bad_input")
        await stored(store, 3, {"new": b"3"})
        house.move("mine", JobEvent.EXITED_OK)
        assert (await client.get(URL)).json()["attempt"] == 3
        assert (await client.get(f"{URL}?attempt=1")).json()["artifacts"][0]["path"] == "old"


async def test_none_yet_and_no_store(tmp_path: Path) -> None:
    """A job that stored nothing has an empty list; a deployment without a store says so."""
    house = await house_with(LocalStore(tmp_path))
    async with house.client() as client:
        assert (await client.get(URL)).json() == {
            **dict.fromkeys(("attempt", "next_page_token")),
            "job_id": "mine",
            "total": 0,
            "bytes": 0,
            "artifacts": [],
            "skipped": [],
        }
        assert_error(await client.get(f"{URL}/file?path=x"), 404, "not_found")
    house.files = None
    async with house.client() as client:
        assert_error(await client.get(URL), 404, "not_found")


async def v1(client: Any) -> dict[str, Any]:
    body = {"user_id": "ada", "job_ids": ["mine"]}
    [job] = (await client.post("/jobs/get_by_user_and_ids", json=body)).json()
    assert isinstance(job, dict)
    return job


async def test_v1_clients_see_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`artifacts` names the files and where to get them, is read once for an ended job, and never
    makes the call fail."""
    store = Counting(tmp_path)
    await stored(store, 1, FILES)
    house = await house_with(store)
    async with house.client() as client:
        assert (await v1(client))["artifacts"] == {}
        house.move("mine", JobEvent.EXITED_OK)
        store.block = StoreUnavailable("the disk is away")
        assert (await v1(client))["artifacts"] == {"unavailable": "the disk is away"}
        store.block = Forbidden("no access")
        assert (await v1(client))["artifacts"] == {"unavailable": "no access"}
        store.block = None
        shown = (await v1(client))["artifacts"]
        seen = store.gets
        assert (await v1(client))["artifacts"] == shown
        assert store.gets == seen
        assert (shown["attempt"], shown["total"], shown["bytes"]) == (1, 4, 2055)
        for row in shown["files"]:
            assert (await client.get(row["url"])).content == FILES[row["path"]]
        assert (await client.get(shown["url"])).json()["total"] == 4
    monkeypatch.setattr(manifests, "WEIGHT_MAX", 3)
    async with house.client() as client:
        assert (await v1(client))["artifacts"] == shown, "too much to remember is read again"
