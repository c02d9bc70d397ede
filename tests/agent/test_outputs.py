"""What becomes of a job's output directory."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import pytest

from agent import outputs
from agent.events import Exited, Signal, Started
from agent.held_directory import HeldDirectory
from agent.outputs import BadOutputs, OutputDirectory, UploadFailed, scan, store_outputs
from agent.runner import _remove
from core.errors import Forbidden
from stores.artifacts import ArtifactPath, File, read_manifest
from stores.base import StoredObject, StoreUnavailable
from stores.local import LocalStore
from tests.agent.runner_rig import RunnerRig
from tests.agent.vm import until

PATH = ArtifactPath("acme", "u1", "j1", 1)


def place(directory: Path, bytes_max: int = 10**9) -> OutputDirectory:
    base = HeldDirectory.of(directory.parent)
    return OutputDirectory(base, [str(directory)], bytes_max, directory.name)


class Moody(LocalStore):
    """A store that refuses some saves first."""

    def __init__(self, root: Path, *faults: Exception) -> None:
        super().__init__(root)
        self.faults = list(faults)
        self.saves: list[str] = []

    async def save(self, key: str, source: BinaryIO) -> StoredObject:
        self.saves.append(key)
        if self.faults:
            raise self.faults.pop(0)
        return await super().save(key, source)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """An output directory with good files and with everything that is not one."""
    out = tmp_path / "out"
    (out / "deep" / "er").mkdir(parents=True)
    (out / "a.txt").write_text("aaa")
    (out / "deep" / "er" / "b.bin").write_bytes(b"\0" * 1000)
    (out / "latest").symlink_to("a.txt")
    (tmp_path / "secret").write_text("not yours")
    (out / "leak").symlink_to(tmp_path / "secret")
    (out / "up").symlink_to("../secret")
    (out / "dirs").symlink_to("deep")
    (out / "dangling").symlink_to("nothing")
    os.mkfifo(out / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(out / "sock"))
    (out / "bad\nname").touch()
    (out / os.fsdecode(b"\xff")).touch()
    return out


def test_what_is_stored_and_what_is_not(made: Path) -> None:
    """Files, and links to files within; never a link that leads out, a pipe or a socket; names that
    nobody could type are named with their bytes."""
    with HeldDirectory.of(made) as directory:
        found = scan(directory)
    assert list(found.files) == ["a.txt", "latest", "deep/er/b.bin"]
    why = {skip.path: skip.why for skip in found.skipped}
    out = "a link that leads out of the directory"
    assert why.pop("leak") == why.pop("up") == out
    assert why.pop("dirs") == "a link to a directory"
    assert found.bytes_total == 1006
    assert why.pop("dangling") == "a link to nothing"
    assert why.pop("pipe") == why.pop("sock") == "not a file"
    assert all("not printable" in words for words in why.values())
    assert set(why) == {"bad\nname", "\\xff"}


async def test_manifest_last(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage it goes on where it was; sizes and checksums are the files' own."""
    store = Moody(tmp_path / "store", StoreUnavailable("busy"))
    monkeypatch.setattr(outputs, "PAUSE_FIRST_S", 0.01)
    manifest = await store_outputs(store, PATH, place(made))
    assert manifest is not None
    assert await read_manifest(store, PATH) == manifest
    assert manifest.files[0] == File("a.txt", 3, hashlib.sha256(b"aaa").hexdigest())
    assert [file.path for file in manifest.files] == ["a.txt", "deep/er/b.bin", "latest"]
    assert store.saves[-1] == PATH.manifest
    assert len(store.saves) == 5, "what was stored before the outage is not stored again"


async def test_nothing_is_nothing(tmp_path: Path) -> None:
    """An empty directory leaves no trace in the store."""
    (tmp_path / "out").mkdir()
    store = Moody(tmp_path / "store")
    assert await store_outputs(store, PATH, place(tmp_path / "out")) is None
    assert store.saves == []


async def test_store_that_stays_away(made: Path, tmp_path: Path) -> None:
    """The wait has an end; a refusal is not worth any. Either way no manifest is written."""
    for faults in ([StoreUnavailable("down")] * 1000, [Forbidden("no access")]):
        store = Moody(tmp_path / "store", *faults)
        with pytest.raises(UploadFailed, match=r"down|no access"):
            await store_outputs(store, PATH, place(made), wait_max_s=0)
        assert await read_manifest(store, PATH) is None


async def test_too_many_files(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More files than anybody wants are the job's own fault."""
    monkeypatch.setattr(outputs, "FILES_MAX", 2)
    with pytest.raises(BadOutputs, match="more than 2 files"):
        await store_outputs(Moody(tmp_path / "store"), PATH, place(made))


async def test_links_by_absolute_paths(made: Path, tmp_path: Path) -> None:
    """An absolute link within the directory is followed, by any name that the job has for it; one
    that only begins with the same letters is not, nor one through a link that leads out."""
    (made / "abs").symlink_to(made / "deep/er/b.bin")
    (made / "inside").symlink_to("/zen/outputs/a.txt")
    (made / "near").symlink_to(f"{made}-other/x")
    (made / "out").symlink_to(tmp_path)
    (made / "through").symlink_to("out/secret")
    (made / "round").symlink_to("round")
    with HeldDirectory.of(made) as directory:
        found = scan(directory, [str(made), "/zen/outputs"])
    assert found.files["abs"] == "deep/er/b.bin"
    assert found.files["inside"] == "a.txt"
    skipped = {skip.path for skip in found.skipped}
    assert {"near", "out", "through", "round"} <= skipped


def become_a_link(path: Path, target: Path) -> None:
    path.rename(path.parent / f"{path.name}-before")
    path.symlink_to(target)


async def test_a_directory_that_became_a_link(made: Path, tmp_path: Path) -> None:
    """The output directory replaced by a link, and a directory in it after the scan: nothing from
    outside is read."""
    kept = place(made)
    with HeldDirectory.of(made) as directory:
        found = scan(directory)
        become_a_link(made / "deep", made / "deep-before")
        with pytest.raises(OSError, match="Not a directory"):
            directory.open(found.files["deep/er/b.bin"])
    become_a_link(made, Path("/etc"))
    store = Moody(tmp_path / "store")
    with pytest.raises(BadOutputs, match="a link is not followed"):
        await store_outputs(store, PATH, kept)
    assert store.saves == []


async def test_bytes_have_a_cap(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes count as the file says them, so a sparse file is not free; holes have a cap of their
    own. Nothing is stored then."""
    with (made / "sparse").open("wb") as file:
        file.write(b"x" * 4096)
        file.truncate(3 * 10**9)
    store = Moody(tmp_path / "store")
    with pytest.raises(BadOutputs, match=r"3\.0 GB .* at most 1 GB are stored \(sandbox"):
        await store_outputs(store, PATH, place(made))
    with pytest.raises(BadOutputs, match=r"3\.0 GB of holes"):
        await store_outputs(store, PATH, place(made, 10**12))
    assert store.saves == []
    (made / "sparse").unlink()
    assert await store_outputs(store, PATH, place(made)) is not None


def test_a_tree_of_any_depth(tmp_path: Path) -> None:
    """Directories nested beyond what a recursive walk bears are named, not a crash."""
    root = tmp_path / "out"
    root.mkdir()
    make_deep(root)
    with HeldDirectory.of(root) as directory:
        found = scan(directory)
    assert [skip.why for skip in found.skipped] == ["a name of more than 512 letters"]
    _remove(root)
    assert not os.path.lexists(root)


def make_deep(root: Path) -> None:
    at = os.open(root, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=at)
        deeper = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)


# --- with a real job -----------------------------------------------------------------------


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RunnerRig]:
    rig = RunnerRig(tmp_path)
    yield rig
    await rig.runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3])
async def test_stored_before_the_end_is_told(rig: RunnerRig, code: int) -> None:
    """A client that hears of the end finds the outputs; a job that failed leaves its own too."""
    rig.start(f"echo result > $ZEN_OUTPUT_DIR/r; ln -s /etc $ZEN_OUTPUT_DIR/e; exit {code}")
    assert (await rig.end()).exit_code == code
    manifest = await read_manifest(rig.store, PATH)
    assert manifest is not None
    assert [file.path for file in manifest.files] == ["r"]
    assert await rig.store.get(PATH.file("r"), 0, 100) == b"result\n"
    assert await rig.log() == "[zen: not stored: e (a link that leads out of the directory)]\n"


@pytest.mark.slow
async def test_not_stored_is_not_a_good_end(tmp_path: Path) -> None:
    """Exit code 0 without its outputs is no success: no exit code, and the store's own words."""
    rig = RunnerRig(tmp_path, store=Moody(tmp_path / "store", Forbidden("gs://b: no access")))
    rig.start("echo x > $ZEN_OUTPUT_DIR/x")
    why = "the outputs could not be stored: gs://b: no access"
    assert await rig.next() == Started("lease-1")
    assert await rig.next() == Exited("lease-1", None, why)
    assert why in await rig.log()


@pytest.mark.slow
async def test_kill_while_storing(tmp_path: Path) -> None:
    """A job that is killed while its outputs are stored ends at once, without them."""
    store = Moody(tmp_path / "store", *[StoreUnavailable("down")] * 1000)
    rig = RunnerRig(tmp_path, store=store)
    rig.start("echo x > $ZEN_OUTPUT_DIR/x")
    await until(lambda: bool(store.saves), "it tries to store")
    rig.runner.signal("lease-1", Signal.KILL)
    end = await rig.end()
    assert (end.exit_code, end.reason) == (None, "the outputs were not stored: there was no time")
