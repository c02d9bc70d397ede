"""Code of jobs on a VM: fetched once, checked, copied, bounded."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.code_cache import CodeCache, NoCode
from agent.events import Exited, Signal, StartFailed
from core.code_store import CodeRules
from core.ids import RandomIds
from scheduler.uploads.code_trees import CodeTrees
from sim.memory.code import MemoryCode
from stores.base import StoreUnavailable
from stores.code_trees import (
    CHUNK,
    Tree,
    TreeFile,
    TreeLink,
    compress,
    encode_pack,
    encode_tree,
    hash_of,
    tree_id,
)
from stores.local import LocalStore
from tests.agent.runner_rig import RunnerRig, order_for
from tests.scheduler.api.fakes import StillClock

BIG = b"x" * CHUNK + b"tail"
FILES = {"big.bin": BIG, "pkg/a.py": b"print('ran')", "pkg/copy.py": b"print('ran')", "zero": b""}


async def stored(store: LocalStore, files: dict[str, bytes] = FILES, tenant: str = "acme") -> str:
    def pieces(data: bytes) -> list[bytes]:
        return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]

    made = tuple(
        TreeFile(path, path.endswith(".py"), len(data), tuple(map(hash_of, pieces(data))))
        for path, data in sorted(files.items())
    )
    links = (TreeLink("pkg/link.py", "a.py"),) if "pkg/a.py" in files else ()
    listed = encode_tree(Tree(made, links))
    trees = CodeTrees(MemoryCode(), store, StillClock(), RandomIds(), CodeRules)
    for data in files.values():
        for piece in pieces(data):
            await trees.take_pack(tenant, encode_pack([piece]))
    assert not (await trees.offer(tenant, tree_id(listed), compress(listed))).missing
    return tree_id(listed)


class Counting(LocalStore):
    """Counts what is read, and may refuse."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads = 0
        self.away = False

    async def get(self, key: str, offset: int, limit: int) -> bytes | None:
        self.reads += 1
        if self.away:
            raise StoreUnavailable("the bucket is away")
        return await super().get(key, offset, limit)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "store")


def cache_of(tmp_path: Path, bytes_max: int = 10**9) -> CodeCache:
    return CodeCache(tmp_path / "vm" / "code", bytes_max)


async def test_a_copy_is_what_was_sent(tmp_path: Path, store: Counting) -> None:
    code = await stored(store)
    await cache_of(tmp_path).place("acme", code, store, tmp_path / "work")
    work = tmp_path / "work"
    assert {p: (work / p).read_bytes() for p in FILES} == FILES
    assert (work / "pkg/link.py").readlink() == Path("a.py")
    assert (work / "pkg/a.py").stat().st_mode & 0o777 == 0o755
    assert (work / "zero").stat().st_mode & 0o777 == 0o644


async def test_it_is_fetched_once_and_each_copy_is_its_own(tmp_path: Path, store: Counting) -> None:
    code, cache = await stored(store), cache_of(tmp_path)
    places = [tmp_path / f"work{number}" for number in range(4)]
    await asyncio.gather(*(cache.place("acme", code, store, place) for place in places))
    reads = store.reads
    (places[0] / "zero").write_text("mine")
    await cache.place("acme", code, store, tmp_path / "later")
    assert store.reads == reads
    assert (tmp_path / "later" / "zero").read_bytes() == b""


async def test_another_tenant_does_not_get_it_from_the_cache(
    tmp_path: Path, store: Counting
) -> None:
    code, cache = await stored(store), cache_of(tmp_path)
    await cache.place("acme", code, store, tmp_path / "work")
    with pytest.raises(NoCode, match="the store has no"):
        await cache.place("other", code, store, tmp_path / "other")
    assert not (tmp_path / "other").exists()


async def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, store: Counting) -> None:
    first, second = await stored(store, {"a": b"1" * 600}), await stored(store, {"a": b"2" * 600})
    cache = cache_of(tmp_path, bytes_max=1000)
    for number, code in enumerate((first, second)):
        await cache.place("acme", code, store, tmp_path / f"work{number}")
    kept = [path.name for path in (tmp_path / "vm" / "code" / "acme").iterdir()]
    assert kept == [second]
    await cache.place("acme", first, store, tmp_path / "again")
    assert (tmp_path / "again" / "a").read_bytes() == b"1" * 600


async def test_what_goes_may_be_wanted_again_meanwhile(
    tmp_path: Path, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large directory takes a while to remove; who fetches it anew is not robbed of it."""
    first, second = await stored(store, {"a": b"1" * 600}), await stored(store, {"a": b"2" * 600})
    cache = cache_of(tmp_path, bytes_max=1000)
    await cache.place("acme", first, store, tmp_path / "work")
    begun, may_go_on, remove = threading.Event(), threading.Event(), shutil.rmtree

    def slow(path: Path, ignore_errors: bool = False) -> None:
        if (path / "a").exists() and not begun.is_set():
            begun.set()
            assert may_go_on.wait(60)
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", slow)
    other = asyncio.create_task(cache.place("acme", second, store, tmp_path / "other"))
    assert await asyncio.to_thread(begun.wait, 60)
    try:
        await cache.place("acme", first, store, tmp_path / "again")
    finally:
        may_go_on.set()
        await other
    assert (tmp_path / "again" / "a").read_bytes() == b"1" * 600
    await cache.place("acme", first, store, tmp_path / "last")
    assert [path.name for path in (tmp_path / "vm" / "code").iterdir()] == ["acme"]


async def test_a_spoiled_pack_is_noticed(tmp_path: Path, store: Counting) -> None:
    """Nothing of it stays; the next try reads it anew."""
    code = await stored(store, {"a": b"good"})
    (pack,) = (tmp_path / "store/code/acme/packs").iterdir()
    good = pack.read_bytes()
    pack.write_bytes(encode_pack([b"evil"]))
    cache = cache_of(tmp_path)
    with pytest.raises(NoCode, match="something else"):
        await cache.place("acme", code, store, tmp_path / "work")
    assert not (tmp_path / "work").exists()
    assert list((tmp_path / "vm" / "code").iterdir()) == []
    pack.write_bytes(good)
    await cache.place("acme", code, store, tmp_path / "work")
    assert (tmp_path / "work" / "a").read_bytes() == b"good"


async def test_what_an_earlier_agent_left_is_not_trusted(tmp_path: Path, store: Counting) -> None:
    code = await stored(store, {"a": b"good"})
    left = tmp_path / "vm" / "code" / "acme" / code
    left.mkdir(parents=True)
    (left / "a").write_bytes(b"")
    await cache_of(tmp_path).place("acme", code, store, tmp_path / "work")
    assert (tmp_path / "work" / "a").read_bytes() == b"good"


# --- by the runner ---


@pytest.fixture
async def rig(tmp_path: Path, store: Counting) -> AsyncIterator[RunnerRig]:
    made = RunnerRig(tmp_path, store=store)
    yield made
    await made.runner.close()


def with_code(code: str, *command: str) -> dict[str, object]:
    return {"spec": replace(order_for(*command).spec, code=code)}


async def test_a_job_starts_in_its_code(rig: RunnerRig, store: Counting) -> None:
    """It may write there; its directory goes with it."""
    code = await stored(store)
    rig.start(**with_code(code, "python3 pkg/a.py; echo x > new; ls"))
    assert await rig.end() == Exited("lease-1", 0, "exit code 0")
    assert await rig.log() == "ran\nbig.bin\nnew\npkg\nzero\n"


async def test_code_that_cannot_be_had_is_not_the_jobs_failure(
    rig: RunnerRig, store: Counting
) -> None:
    code = await stored(store)
    store.away = True
    rig.start(**with_code(code, "true"))
    end = await rig.end()
    assert isinstance(end, StartFailed)
    assert end.exit_code is None
    assert end.reason == f"its code {code[:12]} cannot be fetched: the bucket is away"


async def test_a_stop_does_not_wait_for_the_code(
    rig: RunnerRig, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = await stored(store)
    asked = asyncio.Event()

    async def never(*_: object) -> bytes:
        asked.set()
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(store, "get", never)
    order = rig.start(**with_code(code, "true"))
    await asyncio.wait_for(asked.wait(), 30)
    rig.runner.signal(order.lease_id, Signal.TERM)
    assert await rig.end() == StartFailed("lease-1", 143, "it had not begun")
