"""Stores that fail: a bucket that answers badly, a disk that refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import Forbidden
from stores.base import LogPath, StoreUnavailable
from stores.gcs import TRIES, GcsStore
from stores.local import LocalStore
from tests.stores.fake_gcs import FakeGcs

pytestmark = pytest.mark.slow
PATH = LogPath("acme", "u1", "job-1", 1)


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    with FakeGcs() as fake:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url.removeprefix("http://"))
        yield fake


@pytest.fixture
async def store(gcs: FakeGcs) -> GcsStore:
    return GcsStore("bucket", "", retry_first_s=0.001)


async def write(store: GcsStore | LocalStore, data: bytes) -> None:
    async with store.writer(PATH) as writer:
        await writer.write(data)


async def test_busy_bucket_is_tried_again(gcs: FakeGcs, store: GcsStore) -> None:
    """A few 503 answers cost nothing but time."""
    gcs.fail_next = TRIES - 1
    await write(store, b"hello")
    assert (await store.read(PATH, 0, 10)).data == b"hello"
    await store.close()


async def test_lost_answer_stores_once(gcs: FakeGcs, store: GcsStore) -> None:
    """A segment that was stored although the answer said no is not stored twice."""
    gcs.lose_next = 1
    await write(store, b"hello")
    assert list(gcs.objects.values()) == [b"hello"]
    await store.close()


async def test_dead_bucket_is_given_up(gcs: FakeGcs, store: GcsStore) -> None:
    """After its tries the store says that it is unavailable, with the answer."""
    gcs.fail_next = 1000
    with pytest.raises(StoreUnavailable, match="503"):
        await store.read(PATH, 0, 10)
    assert len(gcs.requests) == TRIES
    await store.close()


async def test_forbidden_is_not_tried_again(gcs: FakeGcs, store: GcsStore) -> None:
    """A refusal is final: a human must act."""
    gcs.forbid = True
    with pytest.raises(Forbidden, match="no access"):
        await store.read(PATH, 0, 10)
    assert len(gcs.requests) == 1
    await store.close()


async def test_follower_asks_once_per_read(gcs: FakeGcs, store: GcsStore) -> None:
    """Reading on from next_offset needs one list call, however long the log is."""
    for _ in range(5):
        await write(store, b"line\n")
    gcs.requests.clear()
    await store.read(PATH, 20, 100)
    assert [request.split()[0] for request in gcs.requests] == ["GET", "GET"]
    await store.close()


async def test_unwritable_directory_is_reported(tmp_path: Path) -> None:
    """A root that is no directory is an unavailable store, not a crash."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot write"):
        await write(LocalStore(tmp_path / "file"), b"x")
