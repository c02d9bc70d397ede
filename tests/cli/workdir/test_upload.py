"""A directory on its way to the service: what it has already is not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.client import Client, Refused, Unreachable
from cli.workdir import upload
from cli.workdir.choice import BadWorkdir
from cli.workdir.upload import Sent, send_directory
from core.code_store import CodeRules
from core.ids import RandomIds
from scheduler.uploads.code_trees import CodeTrees
from sim.memory.code import MemoryCode
from stores.local import LocalStore
from tests.scheduler.api.fakes import StillClock

Json = dict[str, Any]


class Service:
    """The service itself, without HTTP."""

    def __init__(self, root: Path) -> None:
        self.rules = CodeRules()
        self.trees = CodeTrees(
            MemoryCode(), LocalStore(root), StillClock(), RandomIds(), lambda: self.rules
        )
        self.calls: list[str] = []
        self.fail_next: list[Exception] = []

    def client(self) -> Client:
        made = Client("http://127.0.0.1:1", key="k")
        made.get, made.put, made.post = self._get, self._put, self._post  # type: ignore[method-assign]
        return made

    def _get(self, where: str, query: Mapping[str, object] | None = None) -> Json:
        self._called(f"GET {where}")
        if where == "/code":
            rules = self.rules
            return {"tree_bytes_max": rules.tree_max_bytes, "tree_files_max": rules.tree_max_files}
        found = _run(self.trees.find("default", where.rpartition("/")[2]))
        if found is None:
            raise Refused(404, "not_found", "no such tree")
        return {}

    def _put(self, where: str, body: object, query: Mapping[str, object]) -> Json:
        self._called(f"PUT {where}")
        assert isinstance(body, bytes)
        made = _run(self.trees.offer("default", where.rpartition("/")[2], body))
        return {"missing": made.missing}

    def _post(
        self, where: str, body: object = None, query: Mapping[str, object] | None = None
    ) -> Json:
        self._called(f"POST {where}")
        assert isinstance(body, bytes)
        _run(self.trees.take_pack("default", body))
        return {}

    def _called(self, what: str) -> None:
        self.calls.append(what.partition("/trees/")[0])
        if self.fail_next:
            raise self.fail_next.pop()


def _run(made: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(made)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(upload, "PAUSE_S", 0.0)
    made = tmp_path / "project"
    made.mkdir()
    for number in range(20):
        (made / f"file{number}.py").write_text(f"print({number})")
    (made / "twice.py").write_text("print(1)")
    return made


def send(service: Service, root: Path) -> Sent:
    return send_directory(service.client, root, None)


def test_the_first_time_all_of_it(service: Service, root: Path) -> None:
    sent = send(service, root)
    assert (sent.files, sent.new_files) == (21, 21)
    assert sent.words() == f"code: 21 files, 178 bytes; sent 21 new, {sent.sent} bytes"
    assert service.calls == ["GET /code", "PUT /code", "POST /code/packs", "PUT /code"]


def test_the_second_time_nothing_and_then_what_changed(service: Service, root: Path) -> None:
    first = send(service, root)
    service.calls.clear()
    again = send(service, root)
    assert service.calls == ["GET /code"]
    assert (again.tree_id, again.sent) == (first.tree_id, 0)
    assert again.words() == "code: 21 files, 178 bytes, nothing new to send"
    (root / "file7.py").write_text("print('seven')")
    changed = send(service, root)
    assert (changed.new_files, changed.sent < 100) == (1, True)
    (root / "renamed.py").write_text("print(3)")
    assert send(service, root).sent == 0


def test_what_fails_for_a_moment_is_sent_again(service: Service, root: Path) -> None:
    service.fail_next = [Refused(503, "busy", "busy"), Refused(429, "many", "x"), Unreachable("y")]
    service.fail_next.insert(0, Refused(408, "too_slow", "the body took too long to arrive"))
    service.fail_next.append(Refused(404, "not_found", "no such tree"))
    assert send(service, root).new_files == 21


def test_a_refusal_is_told(service: Service, root: Path) -> None:
    service.rules = CodeRules(tenant_max_gb=0)
    with pytest.raises(Exception, match="tenant_max_gb"):
        send(service, root)


def test_bounds_of_the_service_hold(
    service: Service, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked only where it matters."""
    small = CodeRules(tree_max_files=5)
    monkeypatch.setattr(upload, "CodeRules", lambda: small)
    assert send(service, root).files == 21
    service.rules = small
    with pytest.raises(BadWorkdir, match="more than 5 files"):
        send(service, root)
    assert service.calls[-1] == "GET /code"


def test_a_directory_without_files_is_an_error(service: Service, root: Path) -> None:
    (root / ".zenignore").write_text("*\n")
    with pytest.raises(BadWorkdir, match="has nothing to send"):
        send(service, root)


def test_a_file_that_changes_between_is_named(
    service: Service, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be submitted with it."""
    put = service._put

    def meddling(where: str, body: object, query: Mapping[str, object]) -> Json:
        (root / "file3.py").write_text("print('other')")
        return put(where, body, query)

    monkeypatch.setattr(service, "_put", meddling)
    with pytest.raises(BadWorkdir, match=r"file3\.py changed while it was read"):
        send(service, root)
