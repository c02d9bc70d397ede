"""Versions of the configuration: numbered without gaps, by any writer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from core.configuration import VERSIONS_MAX, ConfigVersion, ConfigVersions, FileSeen
from core.errors import NotFound
from core.job import JobEvent
from core.ports import Store
from tests.db.builders import Maker, at, put, put_placed, put_ready_vm, step, submitted

DOCUMENT = {"timers": {"b": 1, "a": [1, 2.5, None, True]}, "clusters": {"x": "ä — 語"}}


def version(number: int, digest: str = "d") -> ConfigVersion:
    return ConfigVersion(number, at(number), "me", "zen.yaml", digest, DOCUMENT, ("a: 1 → 2",))


class Configurations:
    async def test_none_yet(self, configs: ConfigVersions) -> None:
        """An empty house has no version, and says so without an error."""
        assert await configs.newest_number() == 0
        assert await configs.newest() is None
        assert await configs.last_with("d") is None
        assert (await configs.history(10, None)).rows == ()
        with pytest.raises(NotFound, match="version 1"):
            await configs.version(1)

    async def test_a_version_comes_back_as_it_went_in(self, configs: ConfigVersions) -> None:
        """Document and diff survive storage, and so does the order in which people wrote."""
        assert await configs.record(version(1), ())
        found = await configs.version(1)
        assert await configs.newest() == found == version(1)
        assert list(found.document) == list(DOCUMENT)
        assert await configs.newest_number() == 1

    async def test_the_next_number_or_nothing(self, configs: ConfigVersions) -> None:
        """A number that is taken, or that skips one, is refused and changes nothing."""
        assert not await configs.record(version(2), ())
        assert await configs.record(version(1), ())
        assert not await configs.record(version(1, "other"), ())
        assert not await configs.record(version(3), ())
        assert await configs.record(version(2), ())
        assert [row.version for row in (await configs.history(9, None)).rows] == [2, 1]

    async def test_one_of_many_at_once(self, configs: ConfigVersions) -> None:
        """Of several replicas that record the same number at once, one does."""
        tries = (configs.record(version(1, f"d{n}"), ()) for n in range(8))
        done = await asyncio.gather(*tries)
        assert sum(done) == 1
        newest = await configs.newest()
        assert newest is not None
        assert newest.digest == f"d{done.index(True)}"

    async def test_content_is_found_again(self, configs: ConfigVersions) -> None:
        """The newest version with the same content answers for it."""
        for number, digest in enumerate(("a", "b", "a", "c"), start=1):
            assert await configs.record(version(number, digest), ())
        assert await configs.last_with("a") == 3
        assert await configs.last_with("z") is None

    async def test_a_rollback_is_not_what_a_file_said(self, configs: ConfigVersions) -> None:
        """Its content is found where a file has brought it."""
        rolled = replace(version(3, "a"), source="rollback to version 1", rollback_of=1)
        for row in (version(1, "a"), version(2, "b"), rolled):
            assert await configs.record(row, ())
        assert await configs.last_with("a") == 1
        assert await configs.newest() == rolled

    async def test_what_files_said_last(self, configs: ConfigVersions) -> None:
        """Each host's own; of a host that was never seen, what the last one at that path said."""
        assert await configs.file_seen("h1", "/a") is None
        for host, path, digest in (("h1", "/a", "1"), ("h2", "/a", "2"), ("h2", "/b", "3")):
            await configs.saw(FileSeen(host, path, digest))
        seen = [await configs.file_seen(host, "/a") for host in ("h1", "h2", "h3")]
        assert seen == ["1", "2", "2"]
        await configs.saw(FileSeen("h1", "/a", "4"))
        assert await configs.file_seen("h3", "/a") == "4"
        assert await configs.file_seen("h1", "/c") is None

    async def test_a_version_and_its_file_are_one_step(self, configs: ConfigVersions) -> None:
        """A version that is refused leaves no trace of its file."""
        assert not await configs.record(version(2), (), FileSeen("h", "/a", "1"))
        assert await configs.file_seen("h", "/a") is None
        assert await configs.record(version(1), (), FileSeen("h", "/a", "1"))
        assert await configs.file_seen("h", "/a") == "1"

    async def test_old_files_are_forgotten(
        self, configs: ConfigVersions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No more than a bounded number is kept, the ones that were seen last."""
        monkeypatch.setattr(f"{type(configs).__module__}.FILES_MAX", 2)
        for host in ("h1", "h2", "h1", "h3"):
            await configs.saw(FileSeen(host, f"/{host}", host))
        left = [await configs.file_seen("", f"/{host}") for host in ("h1", "h2", "h3")]
        assert left == ["h1", None, "h3"]

    async def test_pages(self, configs: ConfigVersions) -> None:
        """Newest first; a page names where the next one begins, the last one does not."""
        for number in range(1, 6):
            assert await configs.record(version(number), ())
        first = await configs.history(2, None)
        assert [row.version for row in first.rows] == [5, 4]
        assert (first.total, first.next_before) == (5, 4)
        last = await configs.history(3, first.next_before)
        assert [row.version for row in last.rows] == [3, 2, 1]
        assert last.next_before is None

    async def test_clusters_with_work_are_in_use(
        self, store: Store, configs: ConfigVersions, maker: Maker
    ) -> None:
        """Queued and leased jobs hold their cluster; ended ones, and those of others, do not."""
        cluster = maker.job("x").cluster
        assert await configs.jobs_in([cluster, "9xother"]) == {}
        waiting = maker.job("waits")
        await put(store, submitted(waiting))
        runs = maker.job("runs")
        await put(store, submitted(runs))
        await put_placed(store, maker, runs, await put_ready_vm(store, maker), at(1))
        assert await configs.jobs_in([cluster, "9xother"]) == {cluster: 2}
        assert not await configs.record(version(1), [cluster])
        assert await configs.record(version(1), ["9xother"])
        await put(store, step(waiting, JobEvent.STOP_ASKED))
        assert await configs.jobs_in([cluster]) == {cluster: 1}
        assert await configs.jobs_in([]) == {}

    async def test_old_ones_are_forgotten(
        self, configs: ConfigVersions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No more than a bounded number is kept; the numbers go on."""
        assert VERSIONS_MAX >= 100
        monkeypatch.setattr(f"{type(configs).__module__}.VERSIONS_MAX", 2)
        for number in range(1, 5):
            assert await configs.record(replace(version(number), digest=str(number)), ())
        assert [row.version for row in (await configs.history(9, None)).rows] == [4, 3]
        assert await configs.record(version(5), ())
