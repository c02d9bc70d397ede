"""How ids become paths, and how a store is opened."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from stores.base import LogPath, job_key, open_store, quoted
from stores.local import LocalStore

HOSTILE = [
    "",
    ".",
    "..",
    "/",
    "../../etc",
    "a/b",
    "a\0b",
    "%2E%2E",
    "é漢🙂",
    "\ud800",
    "x" * 5000,
    "-",
]


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_id_is_one_harmless_part(part: str) -> None:
    """No id becomes an empty, a dotted, a nested or an over-long path part."""
    text = quoted(part)
    assert PurePosixPath(text).parts == (text,)
    assert text not in ("", ".", "..")
    assert "\0" not in text
    assert len(text.encode()) <= 255


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
def test_different_ids_have_different_parts(ids: list[str]) -> None:
    """Quoting never maps two ids to one place."""
    assert quoted(ids[0]) != quoted(ids[1])


@given(st.text(), st.text(), st.text())
def test_log_key_has_a_fixed_depth(tenant: str, user: str, job: str) -> None:
    """Whatever the ids are, a log lies exactly at logs/<tenant>/<user>/<job>/<attempt>."""
    key = PurePosixPath(LogPath(tenant, user, job, 3).key)
    assert key.parts[0] == "logs"
    assert key.parts[-1] == "3"
    assert len(key.parts) == 5
    assert ".." not in key.parts


def test_plain_ids_stay_readable() -> None:
    """Ordinary ids are their own path parts."""
    assert job_key("logs", "acme", "u-1", "train.7") == "logs/acme/u-1/train.7"


@pytest.mark.parametrize(
    "url", ["", "/tmp/x", "s3://bucket", "gs://", "file://host/x", "file:relative", "http://x/y"]
)
def test_unknown_store_url_is_refused(url: str) -> None:
    """A URL that names no store is refused, with what was expected."""
    with pytest.raises(BadInput, match="gs://bucket/prefix"):
        open_store(url)


def test_file_url_opens_a_local_store(tmp_path: Path) -> None:
    """file:/// names a directory, percent-encoding included."""
    store = open_store(f"file://{tmp_path}/a%20b")
    assert isinstance(store, LocalStore)
    assert store.directory("checkpoints/x") == tmp_path / "a b" / "checkpoints" / "x"
