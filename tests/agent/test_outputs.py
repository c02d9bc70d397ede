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
from agent.outputs import BadOutputs, UploadFailed, scan, store_outputs
from core.errors import Forbidden
from stores.artifacts import ArtifactPath, File, read_manifest
from stores.base import StoredObject, StoreUnavailable
from stores.local import LocalStore
from tests.agent.runner_rig import RunnerRig
from tests.agent.vm import until

PATH = ArtifactPath("acme", "u1", "j1", 1)


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
    found = scan(made)
    assert list(found.files) == ["a.txt", "latest", "deep/er/b.bin"]
    why = {skip.path: skip.why for skip in found.skipped}
    out = "a link that leads out of the directory"
    assert why.pop("leak") == why.pop("up") == out
    assert why.pop("dirs") == "a link to a directory"
    assert why.pop("dangling") == "a link to nothing"
    assert why.pop("pipe") == why.pop("sock") == "not a file"
    assert all("not printable" in words for words in why.values())
    assert set(why) == {"bad\nname", "\\xff"}


async def test_manifest_last(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage it goes on where it was; sizes and checksums are the files' own."""
    store = Moody(tmp_path / "store", StoreUnavailable("busy"))
    monkeypatch.setattr(outputs, "PAUSE_FIRST_S", 0.01)
    manifest = await store_outputs(store, PATH, made)
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
    assert await store_outputs(store, PATH, tmp_path / "out") is None
    assert store.saves == []


async def test_store_that_stays_away(made: Path, tmp_path: Path) -> None:
    """Patience has an end; a refusal is not worth any. Either way no manifest is written."""
    for faults in ([StoreUnavailable("down")] * 1000, [Forbidden("no access")]):
        store = Moody(tmp_path / "store", *faults)
        with pytest.raises(UploadFailed, match=r"down|no access"):
            await store_outputs(store, PATH, made, patience_s=0)
        assert await read_manifest(store, PATH) is None


async def test_too_many_files(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More files than anybody wants are the job's own fault."""
    monkeypatch.setattr(outputs, "FILES_MAX", 2)
    with pytest.raises(BadOutputs, match="more than 2 files"):
        await store_outputs(Moody(tmp_path / "store"), PATH, made)


# --- with a real job -----------------------------------------------------------------------


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RunnerRig]:
    rig = RunnerRig(tmp_path)
    yield rig
    await rig.runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3])
async def test_stored_before_the_end_is_told(rig: RunnerRig, code: int) -> None:
    """Whoever hears of the end finds the outputs; a job that failed leaves its own too."""
    rig.start(f"echo result > $ZEN_OUTPUT_DIR/r; ln -s /etc $ZEN_OUTPUT_DIR/e; exit {code}")
    assert (await rig.end()).exit_code == code
    manifest = await read_manifest(rig.store, PATH)
    assert manifest is not None
    assert [file.path for file in manifest.files] == ["r"]
    assert await rig.store.get(PATH.file("r"), 0, 100) == b"result\n"
    assert await rig.log() == "[zen: not stored: e (a link to a directory)]\n"


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
