"""job-meta.json, stored while the job runs."""

from __future__ import annotations

from pathlib import Path

from agent.held_directory import HeldDirectory
from agent.meta_file import MetaFile
from stores.artifacts import META_BYTES_MAX, META_FILE, ArtifactPath
from stores.local import LocalStore

PATH = ArtifactPath("default", "ada", "a", 1)


async def test_is_stored_when_it_has_changed_and_is_whole(tmp_path: Path) -> None:
    """Half of a file, a list, a link to elsewhere and one that is too large are nobody's news."""
    outputs, store = tmp_path / "outputs", LocalStore(tmp_path / "store")
    outputs.mkdir()
    file, meta = outputs / META_FILE, MetaFile(store, PATH, HeldDirectory.of(tmp_path))

    async def stored() -> bytes | None:
        await meta.look()
        return await store.get(PATH.live_meta, 0, META_BYTES_MAX)

    assert await stored() is None
    file.write_text('{"step":')
    assert await stored() is None
    file.write_text('{"step": 1}')
    assert await stored() == b'{"step": 1}'
    file.write_text("[1, 2]")
    assert await stored() == b'{"step": 1}'
    file.unlink()
    (tmp_path / "secret").write_text('{"password": "x"}')
    file.symlink_to(tmp_path / "secret")
    assert await stored() == b'{"step": 1}'
    file.unlink()
    file.write_bytes(b"{" + b" " * META_BYTES_MAX + b"}")
    assert await stored() == b'{"step": 1}'
    assert await store.get(PATH.file(META_FILE), 0, 10) is None, "that is for its end"
