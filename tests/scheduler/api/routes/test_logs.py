"""The job's own output over HTTP."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import httpx

from core.job import JobEvent
from stores.base import LogChunk, LogPath, StoreUnavailable
from stores.local import LocalStore
from tests.scheduler.api.fakes import TO_RUNNING, House, assert_error

LOGS = "/api/v1/jobs/mine/logs"
PATH = LogPath("default", "0", "mine", 1)


async def started(tmp_path: Path, text: bytes = b"") -> House:
    """A running job with some output."""
    store = LocalStore(tmp_path)
    house = House(logs=store)
    async with house.client() as client:
        await client.post("/api/v1/jobs", json={"command": ["a"], "job_id": "mine"})
    house.move("mine", *TO_RUNNING)
    if text:
        async with store.writer(PATH) as writer:
            await writer.write(text)
    return house


def heads(answer: httpx.Response) -> tuple[str, ...]:
    names = ("Attempt", "Offset", "Next-Offset", "Done", "Final")
    return tuple(answer.headers[f"Zen-{name}"] for name in names)


async def test_log_comes_in_pieces(tmp_path: Path) -> None:
    """Offsets lead through the raw bytes; Done comes with the last piece of an ended attempt."""
    house = await started(tmp_path, b"h\xc3\xa4llo\xff")
    async with house.client() as client:
        first = await client.get(f"{LOGS}?limit=3")
        assert (first.content, heads(first)) == (b"h\xc3\xa4", ("1", "0", "3", "false", "false"))
        rest = await client.get(f"{LOGS}?offset=3")
        assert (rest.content, heads(rest)) == (b"llo\xff", ("1", "3", "7", "false", "false"))
        house.move("mine", JobEvent.EXITED_OK)
        part = await client.get(f"{LOGS}?limit=7")
        assert heads(part) == ("1", "0", "7", "false", "true")
        end = await client.get(f"{LOGS}?offset=7&limit=7")
        assert (end.content, heads(end)) == (b"", ("1", "7", "7", "true", "true"))
    assert end.headers["content-type"] == "text/plain; charset=utf-8"


async def test_job_that_never_started_has_no_log(tmp_path: Path) -> None:
    """A waiting job reads as empty at attempt 0, and is done once the job is."""
    house = House(logs=LocalStore(tmp_path))
    async with house.client() as client:
        await client.post("/api/v1/jobs", json={"command": ["a"], "job_id": "mine"})
        assert heads(await client.get(LOGS)) == ("0", "0", "0", "false", "false")
        assert_error(await client.get(f"{LOGS}?attempt=1"), 422, "bad_input")
        await client.delete("/api/v1/jobs/mine")
        assert heads(await client.get(f"{LOGS}?wait_s=20")) == ("0", "0", "0", "true", "true")


async def test_older_attempt_is_done(tmp_path: Path) -> None:
    """The log of an attempt that was followed by another is complete."""
    house = await started(tmp_path, b"one")
    house.move("mine", JobEvent.VM_LOST, *TO_RUNNING)
    async with house.client() as client:
        assert heads(await client.get(f"{LOGS}?attempt=1")) == ("1", "0", "3", "true", "false")
        assert heads(await client.get(LOGS)) == ("2", "0", "0", "false", "false")


async def test_waiting_reader_gets_bytes_as_they_come(tmp_path: Path) -> None:
    """A long poll ends with the first bytes, not with its time."""
    house = await started(tmp_path)
    async with house.client() as client:
        reading = asyncio.create_task(client.get(f"{LOGS}?wait_s=20"))
        async with LocalStore(tmp_path).writer(PATH) as writer:
            await writer.write(b"late")
        answer = await asyncio.wait_for(reading, 10)
    assert answer.content == b"late"


async def test_waiting_reader_is_told_when_the_job_ends(tmp_path: Path) -> None:
    """A long poll ends when the job does, though no byte came."""
    house = await started(tmp_path)
    async with house.client() as client:
        reading = asyncio.create_task(client.get(f"{LOGS}?wait_s=20"))
        await asyncio.sleep(0)
        house.move("mine", JobEvent.EXITED_OK)
        answer = await asyncio.wait_for(reading, 10)
    assert heads(answer) == ("1", "0", "0", "true", "true")


async def test_waiting_has_an_end(tmp_path: Path) -> None:
    """A long poll without news returns empty when its time is over."""
    house = await started(tmp_path)

    class Impatient(LocalStore):
        async def read(self, path: LogPath, offset: int, limit: int) -> LogChunk:
            house.clock.at += timedelta(seconds=7)
            return await super().read(path, offset, limit)

    house.logs = Impatient(tmp_path)
    async with house.client() as waiting:
        answer = await asyncio.wait_for(waiting.get(f"{LOGS}?wait_s=20"), 10)
    assert heads(answer) == ("1", "0", "0", "false", "false")


async def test_log_store_away_is_503(tmp_path: Path) -> None:
    """A store that does not answer is told as such."""
    house = await started(tmp_path)

    class Away(LocalStore):
        async def read(self, path: LogPath, offset: int, limit: int) -> LogChunk:
            raise StoreUnavailable("the bucket does not answer")

    house.logs = Away(tmp_path)
    async with house.client() as reader:
        assert_error(await reader.get(LOGS), 503, "store_unavailable")


async def test_deployment_without_logs_says_so() -> None:
    """Without a log store the route says that there is none."""
    async with House().client() as client:
        await client.post("/api/v1/jobs", json={"command": ["a"], "job_id": "mine"})
        assert_error(await client.get(LOGS), 404, "not_found")


async def test_bad_ranges_are_refused(tmp_path: Path) -> None:
    """Offsets, limits and waits beyond their bounds are refused by name."""
    house = await started(tmp_path)
    async with house.client() as client:
        for query in ("limit=0", "limit=1048577", "offset=-1", "wait_s=21", "wait_s=nan"):
            body = assert_error(await client.get(f"{LOGS}?{query}"), 422, "bad_input")
            assert query.partition("=")[0] in str(body["error"])
