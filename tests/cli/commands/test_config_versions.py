"""zen config diff, history, rollback, and the line of zen status."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from cli.local.config import VmCap, edited, write_config
from tests.config.test_load import MINIMAL

if TYPE_CHECKING:
    from tests.cli.conftest import Api, Ended

Zen = Callable[..., "Ended"]
PATH = "/api/v1/config"
VERSION = {
    "version": 3,
    "at": "2026-01-31T12:00:00.000Z",
    "author": "scheduler-1",
    "source": "/etc/zen/zen.yaml",
    "digest": "d",
    "diff": ["clusters.1xl4.vm_max: 3 → 6"],
}
FILE = {"path": "/etc/zen/zen.yaml", "state": "in force", "faults": [], "diff": []}
FAULT = {"field": "zen.yaml:9: clusters.1xl4.vm_max", "got": "-6", "expected": "a whole number"}


def in_force(document: object = None, **file: object) -> dict[str, object]:
    whole = {**VERSION, "document": document or {}}
    return {"in_force": whole, "file": {**FILE, **file}, "needs_restart": []}


def test_diff_of_the_watched_file(zen: Zen, api: Api) -> None:
    """In force, different, or refused with the reason; exit code 1 only for a refusal."""
    api.on("GET", PATH, in_force())
    ended = zen("config", "diff")
    assert ended.code == 0
    assert ended.out == "/etc/zen/zen.yaml matches the active version, 3\n"
    api.on("GET", PATH, in_force(state="differs", diff=["clusters.1xl4.vm_max: 6 → 3"]))
    ended = zen("config", "diff")
    assert (ended.code, "vm_max: 6 → 3" in ended.out) == (0, True)
    api.on("GET", PATH, in_force(state="refused", faults=[FAULT]))
    ended = zen("config", "diff")
    assert ended.code == 1
    assert "is refused; the active version is 3" in ended.out
    assert "got -6, expected a whole number" in ended.out
    assert zen("config", "diff", "--json").json["state"] == "refused"


def test_diff_of_another_file(zen: Zen, api: Api, tmp_path: Path) -> None:
    """The service judges a good file; a bad one is told here, with its line, and is not sent."""
    file = tmp_path / "new.yaml"
    file.write_text(MINIMAL)
    told = {"ok": True, "in_force": 3, "diff": ["clusters.1xl4.vm_max: 6 → 3"], "faults": []}
    api.on("POST", f"{PATH}/check", told)
    ended = zen("config", "diff", str(file))
    assert ended.code == 0
    assert "would change, against version 3\n  clusters.1xl4.vm_max: 6 → 3\n" in ended.out
    sent = api.body()
    assert sent["document"]["clusters"]["1xl4"]["vm_max"] == 3
    api.on("POST", f"{PATH}/check", {**told, "ok": False, "faults": [FAULT]})
    assert zen("config", "diff", str(file)).code == 1
    file.write_text(MINIMAL.replace("vm_max: 3", "vm_max: -3"))
    api.on("GET", PATH, in_force())
    ended = zen("config", "diff", str(file))
    assert ended.code == 1
    assert "new.yaml:18: clusters.1xl4.vm_max: got -3" in ended.out
    assert zen("config", "diff", str(tmp_path / "none.yaml")).code == 1


def test_history(zen: Zen, api: Api) -> None:
    """A table, and how to go on."""
    first = {**VERSION, "version": 1, "diff": []}
    page = {"versions": [VERSION, first], "total": 9, "next_before": 1}
    api.on("GET", f"{PATH}/versions", page)
    ended = zen("config", "history", "--limit", "2")
    assert "clusters.1xl4.vm_max: 3 → 6" in ended.out
    assert "the first" in ended.out
    assert "--before 1" in ended.err
    assert api.query() == {"page_size": "2"}
    assert zen("config", "history", "--json").json == page


def test_rollback_and_the_file(zen: Zen, api: Api, tmp_path: Path) -> None:
    """It says that the file differs now; --write makes the file say the same, keeps what belongs to
    its process, and keeps the old file."""
    file = tmp_path / "zen.yaml"
    file.write_text(MINIMAL + "database_url: postgresql://me:secret@db/zen\napi: {port: 9}\n")
    done = {
        "version": 4,
        "changed": True,
        "diff": ["clusters.1xl4.vm_max: 6 → 3"],
        "message": "version 4 is active, with the content of version 1",
        "file": {**FILE, "path": str(file), "state": "differs"},
    }
    api.on("POST", f"{PATH}/rollback", done)
    ended = zen("config", "rollback", "1")
    assert ended.out.startswith("version 4 is active")
    assert f"--write {file}" in ended.out
    assert api.body()["version"] == 1
    assert zen("config", "rollback", "1", "--json").json == done
    api.on("GET", PATH, in_force({"project": "some-project", "api": {"max_body_bytes": 5000}}))
    assert zen("config", "rollback", "1", "--write", str(file)).code == 0
    assert yaml.safe_load(file.read_text()) == {
        "project": "some-project",
        "api": {"max_body_bytes": 5000, "port": 9},
        "database_url": "postgresql://me:secret@db/zen",
    }
    assert (tmp_path / "zen.yaml.before").read_text().startswith(MINIMAL)
    file.write_text("{")
    assert zen("config", "rollback", "1", "--write", str(file)).code == 1
    assert file.read_text() == "{"


def test_a_recorded_version_can_be_shown(zen: Zen, api: Api) -> None:
    """As YAML that could be a file again."""
    api.on("GET", f"{PATH}/versions/2", {**VERSION, "document": {"b": 1, "a": {"c": [1]}}})
    ended = zen("config", "show", "--version", "2")
    assert yaml.safe_load(ended.out) == {"b": 1, "a": {"c": [1]}}
    assert ended.out.startswith("b:")


def test_edits_of_a_local_run_are_known(tmp_path: Path) -> None:
    """What zen up wrote is written anew at the next start, what somebody edited is not."""
    target = tmp_path / "zen.yaml"
    assert not edited(target)
    write_config(target, None, tmp_path, VmCap(4, "at most 4 pretend VMs"))
    assert not edited(target)
    target.write_text(target.read_text().replace("vm_max: 4", "vm_max: 3", 1))
    assert edited(target)
