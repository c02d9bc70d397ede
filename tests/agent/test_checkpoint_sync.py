"""Checkpoints that survive their VM: what is stored, when it counts, what is restored."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from agent import checkpoint_sync
from agent.checkpoint_sync import CheckpointSync, restored, survey, sync_for
from agent.events import Progressed, Signal
from agent.held_directory import HeldDirectory
from core.sandbox import SandboxRules
from stores.base import StoreUnavailable
from stores.checkpoints import CheckpointPath, checkpoint_numbers, object_key, read_checkpoint
from stores.local import LocalStore
from tests.agent.bucket import Bucket
from tests.agent.runner_rig import RunnerRig, order_for
from tests.agent.vm import until

PATH = CheckpointPath("acme", "u1", "j1")


class Fleet:
    """One store, and a VM for each attempt."""

    def __init__(self, root: Path, store: LocalStore) -> None:
        self.root, self.store = root, store
        self.steps: list[float] = []

    def vm(self, attempt: int, rank: int = 0, **rules: int) -> CheckpointSync:
        directory = self.root / f"vm-{attempt}-{rank}"
        kept = SandboxRules(**rules)
        return CheckpointSync(self.store, PATH, rank, attempt, directory, self.steps.append, kept)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, Bucket(tmp_path / "store"))


async def begun(sync: CheckpointSync) -> Path:
    assert await sync.restore() == ""
    return sync.directory


def tree(directory: Path) -> dict[str, str]:
    found = [path for path in directory.rglob("*") if path.is_symlink() or path.is_file()]
    return {
        str(path.relative_to(directory)): str(path.readlink())
        if path.is_symlink()
        else path.read_text()
        for path in found
    }


async def test_another_vm_goes_on_where_the_first_one_was(fleet: Fleet) -> None:
    """Files in directories, and the link to the newest."""
    first = fleet.vm(1)
    here = await begun(first)
    (here / "step-2").mkdir()
    (here / "step-2" / "model.pt").write_text("two")
    (here / "latest").symlink_to("step-2")
    assert await first.store_now()
    second = await begun(fleet.vm(2))
    assert tree(second) == {"step-2/model.pt": "two", "latest": "step-2"}


async def test_what_changes_while_it_is_stored_does_not_count(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a new checkpoint is never restored: the one before is."""
    first = fleet.vm(1)
    here = await begun(first)
    (here / "model.pt").write_text("whole")
    assert await first.store_now()
    (here / "model.pt").write_text("ha")
    save = fleet.store.save

    async def slowly(key: str, source: object) -> object:
        stored = await save(key, source)  # type: ignore[arg-type]
        (here / "model.pt").write_text("half of it")
        return stored

    monkeypatch.setattr(fleet.store, "save", slowly)
    assert not await first.store_now()
    assert "it changed meanwhile" in first.note
    assert tree(await begun(fleet.vm(2))) == {"model.pt": "whole"}


async def test_only_what_changed_is_stored_again(fleet: Fleet) -> None:
    first = fleet.vm(1)
    here = await begun(first)
    (here / "a").write_text("a")
    (here / "b").write_text("b")
    await first.store_now()
    (here / "b").write_text("other")
    await first.store_now()
    numbers = await checkpoint_numbers(fleet.store, PATH.member(0))
    old, new = [await read_checkpoint(fleet.store, PATH.member(0), number) for number in numbers]
    assert old.files[0] == new.files[0]
    assert old.files[1] != new.files[1]
    assert await first.store_now()
    assert await checkpoint_numbers(fleet.store, PATH.member(0)) == numbers, "nothing is new"


async def test_the_next_attempt_stores_nothing_that_is_stored(fleet: Fleet) -> None:
    first, second = fleet.vm(1), fleet.vm(2)
    (await begun(first) / "a").write_text("a")
    await first.store_now()
    (await begun(second) / "b").write_text("b")
    await second.store_now()
    numbers = await checkpoint_numbers(fleet.store, PATH.member(0))
    old, new = [await read_checkpoint(fleet.store, PATH.member(0), number) for number in numbers]
    assert old.files == new.files[:1]


async def test_the_last_ones_are_kept_and_nothing_else(fleet: Fleet) -> None:
    first = fleet.vm(1, checkpoints_keep=2)
    here = await begun(first)
    await fleet.store.put(object_key(PATH.member(0), 1), b"of an attempt that was killed")
    for step in range(5):
        (here / "model.pt").write_text(f"step {step}")
        assert await first.store_now()
    assert len(await checkpoint_numbers(fleet.store, PATH.member(0))) == 2
    assert len(await fleet.store.numbers(f"{PATH.member(0)}/objects")) == 2
    assert tree(await begun(fleet.vm(2))) == {"model.pt": "step 4"}


async def test_an_older_attempt_is_never_newer(fleet: Fleet) -> None:
    """A VM that was cut off stores its last checkpoint after its successor did."""
    old, new = fleet.vm(1), fleet.vm(2)
    (await begun(old) / "model.pt").write_text("old")
    (await begun(new) / "model.pt").write_text("new")
    await new.store_now()
    await old.store_now()
    assert tree(await begun(fleet.vm(3))) == {"model.pt": "new"}


@pytest.mark.parametrize("harm", [b"", b"other bytes", None])
async def test_a_spoilt_checkpoint_gives_way_to_the_one_before(
    fleet: Fleet, harm: bytes | None
) -> None:
    first = fleet.vm(1)
    here = await begun(first)
    for words in ("good", "newest"):
        (here / "model.pt").write_text(words)
        await first.store_now()
    newest = (await checkpoint_numbers(fleet.store, PATH.member(0)))[-1]
    broken = (await read_checkpoint(fleet.store, PATH.member(0), newest)).files[0]
    key = object_key(PATH.member(0), broken.number)
    await (fleet.store.delete(key) if harm is None else fleet.store.put(key, harm))
    second = fleet.vm(2)
    assert "model.pt is not what was stored" in await second.restore()
    assert tree(second.directory) == {"model.pt": "good"}


async def test_what_a_vm_kept_of_another_attempt_is_not_used(fleet: Fleet) -> None:
    """It may be half of something."""
    sync = fleet.vm(1)
    sync.directory.mkdir(parents=True)
    (sync.directory / "torn").write_text("half")
    assert tree(await begun(sync)) == {}


async def test_members_have_each_others_files_and_store_their_own(fleet: Fleet) -> None:
    for rank in (0, 1):
        sync = fleet.vm(1, rank)
        (await begun(sync) / f"shard-{rank}").write_text(str(rank))
        await sync.store_now()
    again = fleet.vm(2, 1)
    here = await begun(again)
    assert tree(here) == {"shard-0": "0", "shard-1": "1"}
    (here / "shard-1").write_text("more")
    await again.store_now()
    newest = (await checkpoint_numbers(fleet.store, PATH.member(1)))[-1]
    own = await read_checkpoint(fleet.store, PATH.member(1), newest)
    assert [file.path for file in own.files] == ["shard-1"]


async def test_no_file_is_written_through_anothers_link(fleet: Fleet, tmp_path: Path) -> None:
    """Links that stay inside one by one may lead out together: those are left away."""
    syncs = {rank: fleet.vm(1, rank) for rank in (0, 1, 2)}
    places = {rank: await begun(sync) for rank, sync in syncs.items()}
    (places[1] / "s").mkdir()
    (places[1] / "s" / "x").write_text("x")
    (places[1] / "p" / "q").mkdir(parents=True)
    (places[1] / "p" / "q" / "r").symlink_to("../../s")
    (places[2] / "l").symlink_to("p/q/r/../../../victim")
    (places[0] / "l").write_text("of a job")
    for sync in syncs.values():
        await sync.store_now()
    again = fleet.vm(2, 0)
    await again.restore()
    assert not (tmp_path.parent / "victim").exists()
    assert not (tmp_path / "victim").exists()
    assert tree(again.directory).get("l") in (None, "of a job")


async def test_what_a_killed_job_was_writing_is_not_stored(fleet: Fleet) -> None:
    first = fleet.vm(1)
    here = await begun(first)
    (here / "last.pt").write_text("whole")
    assert await first.store_now()
    (here / "last.pt").write_text("ha")
    await first.finish(by_itself=False)
    assert tree(await begun(fleet.vm(2))) == {"last.pt": "whole"}
    first.announce(1.0)
    (here / "last.pt").write_text("whole again")
    await first.store_now()
    first._announced.clear()
    (here / "last.pt").write_text("ha")
    await first.finish(by_itself=True)
    assert tree(await begun(fleet.vm(3))) == {"last.pt": "whole again"}, "it has not told of it"


async def followed(sync: CheckpointSync, steps: list[float], step: float) -> None:
    following = asyncio.create_task(sync.follow())
    try:

        async def told() -> bool:
            return step in steps

        await until(told, "the step is told")
    finally:
        following.cancel()


async def test_a_step_is_told_when_all_of_it_is_stored_already(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_sync, "LOOK_S", 0.01)
    first = fleet.vm(1)
    (await begun(first) / "m").write_text("1")
    assert await first.store_now()
    first.announce(5.0)
    await followed(first, fleet.steps, 5.0)


async def test_following_outlives_too_many_files(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_sync, "LOOK_S", 0.01)
    monkeypatch.setattr(checkpoint_sync, "FILES_MAX", 3)
    first = fleet.vm(1)
    here = await begun(first)
    for number in range(5):
        (here / str(number)).touch()
    following = asyncio.create_task(first.follow())

    async def noted() -> bool:
        return "more than 3 files" in first.note

    await until(noted, "a note")
    assert not following.done()
    following.cancel()
    for number in range(5):
        (here / str(number)).unlink()
    (here / "m").touch()
    first.announce(6.0)
    await followed(first, fleet.steps, 6.0)


async def test_too_much_is_not_stored(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = fleet.vm(1)
    here = await begun(sync)
    with (here / "holes").open("wb") as file:
        file.truncate(501 * 1024**3)
    assert not await sync.store_now()
    assert "sandbox.checkpoints_max_gb" in sync.note
    monkeypatch.setattr(checkpoint_sync, "FILES_MAX", 3)
    for number in range(5):
        (here / str(number)).touch()
    assert not await sync.store_now()
    assert "more than 3 files" in sync.note


async def test_links_that_leave_and_what_is_no_file_stay_here(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("../..")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    with HeldDirectory.of(tmp_path) as held:
        found = survey(held)
    assert (list(found.files), found.links) == (["file"], {})


async def test_an_outage_of_the_store_is_waited_for(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, tries = fleet.store.numbers, iter([True, False])

    async def away(key: str) -> object:
        if next(tries, False):
            raise StoreUnavailable("away")
        return await numbers(key)

    monkeypatch.setattr(fleet.store, "numbers", away)
    monkeypatch.setattr(checkpoint_sync, "PAUSE_FIRST_S", 0.0)
    assert await restored(fleet.vm(1)) == ""


def test_a_directory_of_the_store_needs_no_copy(tmp_path: Path) -> None:
    store, order = LocalStore(tmp_path), order_for("true")
    there = store.directory(PATH.key)
    assert sync_for(order, store, there, SandboxRules(), print) is None
    assert sync_for(order, store, tmp_path / "vm", SandboxRules(), print) is not None


SAVE = (
    'echo two > "$ZEN_CHECKPOINT_DIR/model"; '
    """echo '{"step": 2, "checkpoint": true}' >> "$ZEN_STATUS_FILE"; sleep 600"""
)


@pytest.mark.slow
async def test_a_killed_vm_loses_nothing_that_was_said_to_be_saved(tmp_path: Path) -> None:
    """The step is told once it is safe; the next attempt finds the files, on another VM."""
    store = Bucket(tmp_path / "store")
    first = RunnerRig(tmp_path / "one", store=store)
    first.start(SAVE)
    safe: list[Progressed] = []

    async def told() -> bool:
        event = await first.next()
        safe.extend([event] if isinstance(event, Progressed) else [])
        return any(event.checkpoint_step == 2 for event in safe)

    await until(told, "the checkpoint is safe")
    await first.runner.close()
    second = RunnerRig(tmp_path / "two", store=store)
    order = order_for('cat "$ZEN_RESUME_FROM/model"')
    second.runner.start(replace(order, attempt=2))
    assert (await second.end()).exit_code == 0
    assert await second.log(2) == "two\n"
    await second.runner.close()


@pytest.mark.slow
async def test_what_a_job_saves_at_its_end_is_stored(tmp_path: Path) -> None:
    """On SIGTERM too, without a word about it."""
    store = Bucket(tmp_path / "store")
    rig = RunnerRig(tmp_path / "one", store=store)
    rig.start('echo last > "$ZEN_CHECKPOINT_DIR/model"; exit 143')
    assert (await rig.end()).exit_code == 143
    numbers = await checkpoint_numbers(store, PATH.member(0))
    assert len(numbers) == 1
    await rig.runner.close()


@pytest.mark.slow
async def test_a_job_that_is_stopped_while_it_is_restored_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = Bucket(tmp_path / "store"), asyncio.Event()

    async def never(_: str) -> list[int]:
        asked.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(store, "numbers", never)
    rig = RunnerRig(tmp_path / "one", store=store)
    rig.start("true")
    await asked.wait()
    rig.runner.signal("lease-1", Signal.TERM)
    ended = await rig.end()
    assert (ended.exit_code, ended.reason) == (143, "it was stopped before it began")
    await rig.runner.close()
