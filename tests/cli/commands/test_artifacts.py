"""zen artifacts and zen fetch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cli.commands import artifacts

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
FILES = {"a.txt": b"alpha\n", "deep/b.bin": b"b" * 5000, "deep/c": b"", "deeper": b"d"}
URL = "/api/v1/jobs/train-7/artifacts"


def row(path: str, data: bytes) -> dict[str, Any]:
    return {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def listing(files: dict[str, bytes]) -> Callable[[httpx.Request], httpx.Response]:
    """Two files to a page."""
    rows = [row(path, data) for path, data in files.items()]

    def answer(request: httpx.Request) -> httpx.Response:
        start = int(request.url.params.get("page_token", "0"))
        page = {
            "job_id": "train-7",
            "attempt": 2,
            "total": len(rows),
            "bytes": sum(r["size"] for r in rows),
            "artifacts": rows[start : start + 2],
            "skipped": [{"path": "out", "why": "a link that leads out of the directory"}],
            "next_page_token": str(start + 2) if start + 2 < len(rows) else None,
        }
        return httpx.Response(200, json=page)

    return answer


@pytest.fixture(autouse=True)
def served(api: Api) -> None:
    def file(request: httpx.Request) -> httpx.Response:
        data = FILES[request.url.params["path"]]
        first = request.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-")
        return httpx.Response(200 if first == "0" else 206, content=data[int(first) :])

    api.on("GET", URL, listing(FILES))
    api.on("GET", f"{URL}/file", file)


def test_list(zen: Zen, api: Api) -> None:
    """All pages, the sum, and what was not stored."""
    ended = zen("artifacts", "train-7")
    assert ended.code == 0
    assert [line.split()[-1] for line in ended.out.splitlines()[1:5]] == list(FILES)
    assert "4 files, 4.9 KB, of attempt 2" in ended.out
    assert "not stored: out: a link that leads out of the directory" in ended.err
    assert zen("artifacts", "train-7", "--json").json["total"] == 4
    assert api.query(-1)["attempt"] == "2", "later pages are of the same attempt"


def test_nothing_stored(zen: Zen, api: Api) -> None:
    """No files is not an error of the list, but there is nothing to fetch."""
    api.on("GET", URL, listing({}))
    assert "has stored nothing" in zen("artifacts", "train-7").out
    ended = zen("fetch", "train-7")
    assert ended.code == 1
    assert "nothing" in ended.err


def test_fetch_all(zen: Zen, tmp_path: Path) -> None:
    """Every file with its bytes; a second time nothing is fetched."""
    to = tmp_path / "new" / "results"
    assert zen("fetch", "train-7", "--to", str(to)).code == 0
    found = {str(f.relative_to(to)): f.read_bytes() for f in to.rglob("*") if f.is_file()}
    assert found == FILES
    again = zen("fetch", "train-7", "--to", str(to), "--json").json
    assert [file["fetched"] for file in again["files"]] == [False] * 4


@pytest.mark.parametrize(
    ("path", "names"),
    [("deep", ["deep/b.bin", "deep/c"]), ("deep/", ["deep/b.bin", "deep/c"]), ("a.txt", ["a.txt"])],
)
def test_fetch_some(zen: Zen, tmp_path: Path, path: str, names: list[str]) -> None:
    """A directory means what is below it, not what begins with its name."""
    told = zen("fetch", "train-7", path, "--to", str(tmp_path), "--json").json
    assert [file["path"] for file in told["files"]] == names
    assert zen("fetch", "train-7", "dee", "--to", str(tmp_path)).code == 1


def test_what_differs_is_not_overwritten(zen: Zen, tmp_path: Path) -> None:
    """A file of another content stays, unless --force."""
    (tmp_path / "a.txt").write_text("mine")
    ended = zen("fetch", "train-7", "--to", str(tmp_path))
    assert ended.code == 1
    assert "--force" in ended.err
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert not (tmp_path / "deep").exists(), "nothing was begun"
    assert zen("fetch", "train-7", "--to", str(tmp_path), "--force").code == 0
    assert (tmp_path / "a.txt").read_bytes() == FILES["a.txt"]


def test_other_bytes_are_not_kept(zen: Zen, api: Api, tmp_path: Path) -> None:
    """What does not have its checksum never takes its name."""
    api.on("GET", f"{URL}/file", lambda _: httpx.Response(200, content=b"alphb\n"))
    ended = zen("fetch", "train-7", "a.txt", "--to", str(tmp_path))
    assert ended.code == 1
    assert "other bytes" in ended.err
    assert list(tmp_path.glob("*.txt")) == list(tmp_path.glob(".*part")) == []


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", ""])
def test_no_path_leads_out(zen: Zen, api: Api, tmp_path: Path, path: str) -> None:
    """Whatever the service says, nothing is written outside of the directory."""
    api.on("GET", URL, listing({path: b"x"}))
    ended = zen("fetch", "train-7", "--to", str(tmp_path / "in"), "--force")
    assert ended.code == 1
    assert "no path below a directory" in ended.err
    assert not (tmp_path / "evil").exists()


def test_broken_connection_is_taken_up(
    zen: Zen, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a break it goes on with the byte that comes next."""
    data = FILES["deep/b.bin"]
    ranges = []

    class Breaking(httpx.SyncByteStream):
        def __init__(self, first: int) -> None:
            self.first = first

        def __iter__(self) -> Any:
            yield data[self.first : self.first + 2000]
            if self.first + 2000 < len(data):
                raise httpx.ReadError("broken")

    def file(request: httpx.Request) -> httpx.Response:
        ranges.append(request.headers.get("range"))
        first = int((ranges[-1] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        return httpx.Response(206 if first else 200, stream=Breaking(first))

    monkeypatch.setattr(artifacts, "CHUNK", 500)
    api.on("GET", f"{URL}/file", file)
    assert zen("fetch", "train-7", "deep/b.bin", "--to", str(tmp_path)).code == 0
    assert ranges == [None, "bytes=2000-", "bytes=4000-"]
    assert (tmp_path / "deep" / "b.bin").read_bytes() == data
