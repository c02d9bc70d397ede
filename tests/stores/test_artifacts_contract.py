"""What every store guarantees of whole files, against a directory and against a bucket."""

from __future__ import annotations

import hashlib
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from core.errors import BadInput, Forbidden
from stores import gcs_upload
from stores.artifacts import (
    ArtifactPath,
    BadManifest,
    File,
    Manifest,
    Skipped,
    read_manifest,
    write_manifest,
)
from stores.base import FileStore, StoredObject, StoreUnavailable, open_store
from stores.gcs import GcsStore
from stores.local import LocalStore
from tests.stores.fake_gcs import FakeGcs

pytestmark = pytest.mark.slow
PATH = ArtifactPath("acme", "u1", "job-1", 2)
PIECE = 256 * 1024
HOSTILE = ["..", ".", "a/../../../etc/passwd", "/etc/passwd", "a\0b", "é漢/ü", "%2F..", "x" * 3000,
           "/".join("y" * 100 for _ in range(20)), " ", "manifest.json"]  # fmt: skip


@pytest.fixture(scope="module")
def gcs() -> Iterator[FakeGcs]:
    with FakeGcs(page=3) as fake:
        yield fake


@pytest.fixture(params=["local", "gcs"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FileStore]:
    monkeypatch.setattr(gcs_upload, "PIECE", PIECE)
    if request.param == "gcs":
        fake: FakeGcs = request.getfixturevalue("gcs")
        fake.objects.clear()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url)
        opened = open_store("gs://bucket/some/prefix")
    else:
        opened = open_store(f"file://{tmp_path}/store")
    yield opened
    await opened.close()


async def read_all(store: FileStore, key: str) -> bytes | None:
    data = b""
    while chunk := await store.get(key, len(data), 100_000):
        data += chunk
    return None if chunk is None else data


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7])
async def test_saved_is_read(store: FileStore, size: int) -> None:
    """Every byte of a file of any size comes back, and its size and checksum are told."""
    data = bytes(i * 7 % 251 for i in range(size))
    saved = await store.save("a/b/c", io.BytesIO(data))
    assert saved == StoredObject(size, hashlib.sha256(data).hexdigest())
    assert await read_all(store, "a/b/c") == data
    assert await store.get("a/b/c", size, 10) == b""
    assert await store.get("a/b/c", max(0, size - 1), 10) == data[-1:]


async def test_deleted_is_gone(store: FileStore) -> None:
    """Its number too; what was never there can be deleted as well."""
    await store.put("a/7/data", b"x")
    await store.put("a/8/data", b"y")
    await store.delete("a/7/data")
    await store.delete("a/7/data")
    assert await store.get("a/7/data", 0, 10) is None
    assert await store.numbers("a") == [8]


async def test_saved_again_is_replaced(store: FileStore) -> None:
    """A repeat by the same writer wins, also a shorter one, from its beginning."""
    source = io.BytesIO(b"first and long")
    await store.save("k", source)
    await store.save("k", source)
    assert await read_all(store, "k") == b"first and long"
    await store.put("k", b"second")
    assert await read_all(store, "k") == b"second"


async def test_missing_is_not_empty(store: FileStore) -> None:
    """Nothing under a key is told apart from an empty file there."""
    await store.put("there", b"")
    assert await store.get("there", 0, 10) == b""
    assert await store.get("not/there", 0, 10) is None
    with pytest.raises(BadInput):
        await store.get("there", -1, 10)


async def test_numbers_below_a_key(store: FileStore) -> None:
    """The attempts that have something, in order; other names do not count."""
    for name in ("10/x", "2/x", "2/y", "old/x", "1/x", "3/x"):
        await store.put(f"jobs/{name}", b"x")
    assert list(await store.numbers("jobs")) == [1, 2, 3, 10]
    assert list(await store.numbers("none")) == []


async def test_manifest_comes_back(store: FileStore) -> None:
    """A manifest is read as it was written; before it is written there are no artifacts."""
    manifest = Manifest((File("a/b", 3, "0" * 64),), (Skipped("l", "a link that leads out"),))
    assert await read_manifest(store, PATH) is None
    await write_manifest(store, PATH, manifest)
    assert await read_manifest(store, PATH) == manifest
    assert list(await store.numbers("artifacts/acme/u1/job-1")) == [2]
    await store.put(PATH.manifest, b'{"files": "none"}')
    with pytest.raises(BadManifest, match="cannot be read"):
        await read_manifest(store, PATH)


async def test_hostile_names_stay_in_their_place(store: FileStore, tmp_path: Path) -> None:
    """Whatever a file is called, it lies below its attempt, and different names do not meet."""
    keys = {PATH.file(path) for path in HOSTILE}
    assert len(keys) == len(HOSTILE)
    for path in HOSTILE:
        key = PATH.file(path)
        assert key.startswith(f"{PATH.key}/")
        assert not {"..", "."} & set(key.split("/"))
        assert len(key) < 900
        await store.put(key, path.encode())
    for path in HOSTILE:
        assert await read_all(store, PATH.file(path)) == path.encode()
    assert _files_outside(tmp_path) == []


def _files_outside(root: Path) -> list[Path]:
    return [file for file in root.rglob("*") if file.is_file() and PATH.key not in str(file)]


async def test_full_disk_is_a_clear_word(tmp_path: Path) -> None:
    """What cannot be written is StoreUnavailable with the file in it, and no half is left."""
    store = LocalStore(tmp_path)
    (tmp_path / "a").write_text("a file where a directory should be")
    with pytest.raises(StoreUnavailable, match="cannot write"):
        await store.put("a/b", b"x")
    (tmp_path / "d" / "k").mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match="cannot write"):
        await store.put("d/k", b"x")
    assert [entry.name for entry in (tmp_path / "d").iterdir()] == ["k"]


@pytest.fixture
async def bucket(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GcsStore]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
    monkeypatch.setattr(gcs_upload, "PIECE", PIECE)
    gcs.objects.clear()
    store = GcsStore("bucket", "p", retry_first_s=0.001)
    yield store
    await store.close()
    gcs.take_most, gcs.forbid, gcs.spoil = 1 << 30, False, False
    gcs.fail_next = gcs.lose_next = 0


async def test_lost_answers_and_small_bites(bucket: GcsStore, gcs: FakeGcs) -> None:
    """An upload goes on where the bucket stands: after errors, lost answers, and half-taken
    pieces."""
    data = bytes(i % 256 for i in range(3 * PIECE + 100))
    gcs.fail_next, gcs.lose_next, gcs.take_most = 2, 2, PIECE // 2
    saved = await bucket.save("big", io.BytesIO(data))
    assert saved.size == len(data)
    assert gcs.objects["p/big"] == data


async def test_bucket_that_holds_other_bytes(bucket: GcsStore, gcs: FakeGcs) -> None:
    """The bucket's checksum has to agree; a refusal is told as such, at once."""
    gcs.spoil = True
    with pytest.raises(StoreUnavailable, match="other bytes"):
        await bucket.put("k", b"mine")
    gcs.forbid = True
    with pytest.raises(Forbidden, match="gs://bucket"):
        await bucket.put("k", b"mine")
