"""zen cp: stored files, by the words of cp."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.cli.commands.submissions import Job, Zen

if TYPE_CHECKING:
    from tests.cli.conftest import Api

FILES = {"m.json": b"{}", "ckpt/last/w": b"1", "ckpt/x": b"2"}
URL = "/api/v1/jobs/train-7/artifacts"


@pytest.fixture(autouse=True)
def served(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"path": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in FILES.items()
    ]
    page = {"job_id": "train-7", "attempt": 2, "total": 3, "bytes": 4, "artifacts": rows}
    api.on("GET", URL, {**page, "skipped": [], "next_page_token": None})
    file = f"{URL}/file"
    api.on("GET", file, lambda asked: httpx.Response(200, content=FILES[asked.url.params["path"]]))
    monkeypatch.chdir(tmp_path)


def test_file_into_a_directory_or_under_another_name(zen: Zen, tmp_path: Path) -> None:
    assert zen("cp", "train-7:m.json", ".").code == 0
    assert zen("cp", "train-7:m.json", "last.json").code == 0
    assert (tmp_path / "m.json").read_bytes() == (tmp_path / "last.json").read_bytes() == b"{}"
    assert zen("cp", "train-7:m.json", ".").out == "1 already there\n"


def test_directory_keeps_its_name(zen: Zen, tmp_path: Path) -> None:
    """As cp -r does it; `JOB:` alone is all that was stored."""
    told = zen("cp", "train-7:ckpt/", "out", "--json").json
    assert [one["fetched"] for one in told["files"]] == [True, True]
    assert (tmp_path / "out" / "ckpt" / "last" / "w").read_bytes() == b"1"
    zen("cp", "train-7:", "all")
    assert sorted(p.name for p in (tmp_path / "all").rglob("*") if p.is_file()) == [
        *("m.json", "w", "x"),
    ]


def test_what_is_there_is_not_overwritten(zen: Zen, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(b"mine")
    ended = zen("cp", "train-7:m.json", ".")
    assert ended.code == 1
    assert "--force replaces it" in ended.err
    assert zen("cp", "train-7:m.json", ".", "--force").code == 0


def test_job_that_runs_says_when_files_are_stored(zen: Zen, api: Api, job: Job) -> None:
    api.on("GET", "/api/v1/jobs/train-7", job)
    assert "files are stored when an attempt ends" in zen("cp", "train-7:nosuch", ".").err
    api.on("GET", "/api/v1/jobs/train-7", {**job, "status": "SUCCEEDED"})
    assert "nothing at nosuch" in zen("cp", "train-7:nosuch", ".").err


def test_source_has_a_job(zen: Zen) -> None:
    assert "expected a job and a path" in zen("cp", "train-7", ".").err
