"""What a replica starts with: its file, or, if that is bad, the last good configuration that the
database knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from config.document import Document, read_bytes
from config.errors import ConfigError
from config.load import DEFAULT_PATH
from config.reload import CandidateConfig, Reader
from config.watch import FileLook, WatchedFile
from core.configuration import ConfigVersion
from core.errors import Fault, StoreDown
from db.config_versions import PostgresConfigVersions
from db.store import PostgresStore


@dataclass(frozen=True, slots=True)
class Start:
    """Settings without faults, and where edits of them will come from."""

    reader: Reader
    candidate: CandidateConfig
    file: WatchedFile
    note: str = ""
    """Why it is not the file's content."""


async def begin(path: Path | None, environ: Mapping[str, str]) -> Start:
    """ConfigError with every fault if the file is bad and nothing better is known."""
    file, reader = WatchedFile(path or DEFAULT_PATH), Reader(environ)
    look = file.look()
    try:
        return Start(reader, _read(reader, look, file.path), file)
    except ConfigError as error:
        return await _last_good(reader, look, file, error)


def _read(reader: Reader, look: FileLook, path: str) -> CandidateConfig:
    if look.error:
        raise ConfigError([Fault(path, look.error, "a file that can be read")])
    return reader.file(look.raw, path)


async def _last_good(
    reader: Reader, look: FileLook, file: WatchedFile, error: ConfigError
) -> Start:
    """An outage must not follow from a typo: a replica that is started again with a bad file goes
    on with what was in force. Only what belongs to this process still comes from the file."""
    bad = read_bytes(look.raw, file.path)
    url = reader.database_url(bad)
    if url is None:
        raise error  # it is at fault itself
    try:
        newest = await _newest(url)
    except StoreDown as down:
        where = "the database, which may know the last good configuration"
        raise ConfigError([*error.faults, Fault(where, str(down), "an answer")]) from down
    if newest is None:
        raise error
    document = Document(f"version {newest.version}", dict(newest.document))
    document.overlay(reader.salvage(bad).values)
    note = f"{error}\ngoing on with version {newest.version}, the last good one"
    return Start(reader, reader.document(document), file, note)


async def _newest(url: str) -> ConfigVersion | None:
    store = PostgresStore(url, pool_max=1)
    await store.open()
    try:
        return await PostgresConfigVersions(store).newest()
    finally:
        await store.close()
