"""What a replica starts with, on a real database."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import ConfigError
from config.reload import Reader
from core.configuration import ConfigVersion
from db.config_versions import PostgresConfigVersions
from db.store import PostgresStore
from scheduler.operations.first_config import begin
from tests.config.test_load import MINIMAL
from tests.db.builders import T0

pytestmark = pytest.mark.slow
NOWHERE = "postgresql://127.0.0.1:1/zen"


async def record(url: str, text: str) -> None:
    candidate = Reader({}).file(text.encode(), "zen.yaml")
    store = PostgresStore(url)
    await store.open()
    row = ConfigVersion(1, T0, "me", "zen.yaml", candidate.digest, candidate.document, ())
    assert await PostgresConfigVersions(store).record(row, ())
    await store.close()


@pytest.mark.parametrize("bad", ["{ broken", "nonsense: 1\n", ""])
async def test_a_bad_file_and_a_good_version(database_url: str, tmp_path: Path, bad: str) -> None:
    """It goes on with what was in force, and says why. What belongs to the process still comes from
    the file, if it can be read there."""
    path, environ = tmp_path / "zen.yaml", {"DATABASE_URL": database_url}
    path.write_text(bad)
    with pytest.raises(ConfigError):
        await begin(path, environ)  # nothing was ever in force
    await record(database_url, MINIMAL + "store_url: gs://bucket/logs\napi: {port: 4321}\n")
    start = await begin(path, environ)
    settings = start.candidate.settings
    assert settings.clusters[0].vm_max == 3
    assert (settings.database_url, settings.store_url) == (database_url, "gs://bucket/logs")
    assert settings.api.port == 4321
    assert "going on with version 1" in start.note
    path.write_text("nonsense: 1\napi: {port: 1234}\n")
    assert (await begin(path, environ)).candidate.settings.api.port == 1234
    path.unlink()
    assert "No such file" in (await begin(path, environ)).note


async def test_a_good_file_needs_no_database(tmp_path: Path) -> None:
    """Whether the database answers is a question for later."""
    path = tmp_path / "zen.yaml"
    path.write_text(MINIMAL)
    start = await begin(path, {"DATABASE_URL": NOWHERE})
    assert (start.note, start.file.path) == ("", str(path))


async def test_a_bad_file_and_no_database(tmp_path: Path) -> None:
    """Both are told."""
    path = tmp_path / "zen.yaml"
    path.write_text("nonsense: 1\n")
    with pytest.raises(ConfigError, match="nonsense") as caught:
        await begin(path, {"DATABASE_URL": NOWHERE})
    assert "last good configuration" in str(caught.value)
