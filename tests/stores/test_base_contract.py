"""What every store guarantees, against a directory and against a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from core.errors import BadInput
from stores.base import FileStore, LogPath, open_store
from stores.gcs import SEGMENT_MAX
from tests.stores.fake_gcs import FakeGcs

pytestmark = pytest.mark.slow
PATH = LogPath("acme", "u1", "job-1", 1)
HOSTILE = ["..", "/", "../../../x", "a\0b", "é漢", "%2F", "x" * 3000]


@pytest.fixture(scope="module")
def gcs() -> Iterator[FakeGcs]:
    with FakeGcs(page=3) as fake:
        yield fake


@pytest.fixture(params=["local", "gcs"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FileStore]:
    if request.param == "gcs":
        fake: FakeGcs = request.getfixturevalue("gcs")
        fake.objects.clear()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url)
        opened = open_store("gs://bucket/some/prefix")
    else:
        opened = open_store(f"file://{tmp_path}/store")
    yield opened
    await opened.close()


async def write(store: FileStore, path: LogPath, *chunks: bytes) -> None:
    async with store.writer(path) as writer:
        for chunk in chunks:
            await writer.write(chunk)


async def read_all(store: FileStore, path: LogPath, limit: int) -> bytes:
    data, offset = b"", 0
    while True:
        chunk = await store.read(path, offset, limit)
        assert len(chunk.data) <= limit
        assert chunk.next_offset == offset + len(chunk.data)
        if not chunk.data:
            return data
        data, offset = data + chunk.data, chunk.next_offset


async def test_written_is_read(store: FileStore) -> None:
    """What was written before the writer closed is read back, byte for byte."""
    await write(store, PATH, b"one\n", b"", b"two\n\xff\x00")
    assert (await store.read(PATH, 0, 1000)).data == b"one\ntwo\n\xff\x00"
    assert await store.size(PATH) == 10


async def test_missing_log_reads_empty(store: FileStore) -> None:
    """A log that nobody wrote has no bytes, no size and no attempts."""
    chunk = await store.read(PATH, 5, 10)
    assert (chunk.data, chunk.next_offset) == (b"", 5)
    assert await store.size(PATH) == 0
    assert list(await store.attempts("acme", "u1", "job-1")) == []


async def test_any_offset_and_limit(store: FileStore) -> None:
    """Every (offset, limit) gives exactly that slice, across however many writers."""
    for piece in (b"abc", b"defgh", b"i", b"jklmnop"):
        await write(store, PATH, piece)
    whole = b"abcdefghijklmnop"
    for offset in range(len(whole) + 2):
        for limit in (1, 2, 5, 100):
            assert (await store.read(PATH, offset, limit)).data == whole[offset : offset + limit]


async def test_big_log_in_pages(store: FileStore) -> None:
    """A log of several segments is read in order with any page size."""
    whole = bytes(range(256)) * (SEGMENT_MAX * 5 // 2 // 256)
    await write(store, PATH, whole[:1000], whole[1000:])
    assert await store.size(PATH) == len(whole)
    assert await read_all(store, PATH, 700_001) == whole


async def test_reader_sees_live_output(store: FileStore) -> None:
    """What was written is seen while the writer is still open."""
    async with store.writer(PATH) as writer:
        await writer.write(b"alive\n")
        async with asyncio.timeout(5):
            while (await store.read(PATH, 0, 100)).data != b"alive\n":  # noqa: ASYNC110  # a store has no events
                await asyncio.sleep(0.02)
        await writer.write(b"again\n")
    assert (await store.read(PATH, 6, 100)).data == b"again\n"


async def test_attempts_are_listed_in_order(store: FileStore) -> None:
    """Attempts sort as numbers, and other jobs' are not among them."""
    for attempt in (10, 2, 1):
        await write(store, LogPath("acme", "u1", "job-1", attempt), b"x")
    await write(store, LogPath("acme", "u1", "job-11", 7), b"x")
    assert list(await store.attempts("acme", "u1", "job-1")) == [1, 2, 10]


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_hostile_ids_do_not_meet(store: FileStore, hostile: str) -> None:
    """An id with dots, slashes, NULs or foreign letters has a log of its own."""
    mine = LogPath(hostile, hostile, hostile, 1)
    await write(store, PATH, b"theirs")
    await write(store, mine, b"mine")
    assert (await store.read(mine, 0, 100)).data == b"mine"
    assert (await store.read(PATH, 0, 100)).data == b"theirs"
    assert list(await store.attempts(hostile, hostile, hostile)) == [1]


@pytest.mark.parametrize(("offset", "limit", "field"), [(-1, 5, "offset"), (0, 0, "limit")])
async def test_bad_range_is_refused(store: FileStore, offset: int, limit: int, field: str) -> None:
    """A range that cannot be is refused by name."""
    with pytest.raises(BadInput, match=field):
        await store.read(PATH, offset, limit)
