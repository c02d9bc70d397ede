"""zen job init, check and schema; zen submit with parameters and a matrix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from cli.commands.job_files import SCHEMA_FILE
from tests.cli.commands.submissions import Zen

if TYPE_CHECKING:
    from tests.cli.conftest import Api


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_new_file_has_no_faults(zen: Zen, here: Path) -> None:
    """It names its schema, which stands beside it, and fits it; it is not overwritten."""
    assert zen("job", "init", "t.yaml").code == 0
    text = (here / "t.yaml").read_text()
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n")
    schema = json.loads((here / SCHEMA_FILE).read_text())
    assert yaml.safe_load(text).keys() <= schema["properties"].keys()
    assert zen("job", "check", "t.yaml").out == "t.yaml: no faults\n"
    assert "--force" in zen("job", "init", "t.yaml").err
    assert zen("job", "init", "t.yaml", "--force", "--schema", "http://x/s.json").code == 0


def test_check_tells_all(zen: Zen, here: Path) -> None:
    (here / "a.yaml").write_text("gpus: 2\nretries: x\n")
    ended = zen("job", "check", "a.yaml")
    assert ended.code == 1
    assert [line.split(" ")[0] for line in ended.out.splitlines()] == [
        *("a.yaml:1:1:", "a.yaml:1:1:", "a.yaml:2:10:"),
    ]
    told = zen("job", "check", "a.yaml", "--json").json["faults"]
    assert (told[-1]["line"], told[-1]["column"]) == (2, 10)


def test_schema_knows_every_field(zen: Zen) -> None:
    schema = zen("job", "schema").json
    assert {"command", "extends", "matrix", "parameters", "secrets"} <= schema["properties"].keys()
    assert zen("job", "schema", "--json").json == schema


@pytest.mark.usefixtures("accepts")
def test_parameters_of_a_submission(zen: Zen, api: Api, here: Path) -> None:
    (here / "a.yaml").write_text("parameters: {n: 1}\ngpu_count: ${{ n }}\ncommand: [a]\n")
    assert zen("submit", "-f", "a.yaml", "-p", "n=4").code == 0
    assert api.body() == {"gpu_count": 4, "command": ["a"]}
    assert "only with a file" in zen("submit", "-p", "n=4", "--", "a").err
    ended = zen("submit", "-f", "a.yaml", "-p", "m=4")
    assert (ended.code, "no such parameter" in ended.err) == (1, True)


def test_matrix_is_a_group(zen: Zen, api: Api, here: Path) -> None:
    """One job for each combination, with the options of the line."""

    def batch(request: httpx.Request) -> httpx.Response:
        jobs: list[dict[str, Any]] = json.loads(request.content)["jobs"]
        results = [
            {"status": "submitted", "job_id": job["job_id"], "cluster": "1xl4"} for job in jobs
        ]
        return httpx.Response(200, json={"submitted": 2, "refused": 0, "results": results})

    api.on("POST", "/api/v1/jobs:batch", batch)
    (here / "a.yaml").write_text("matrix: {s: [1, 2]}\ncommand: [a, '${{ matrix.s }}']\n")
    ended = zen("submit", "-f", "a.yaml", "--id", "fit", "--retries", "2", "--quiet")
    assert ended.out == "fit-1\nfit-2\n"
    shared = {"group": "fit", "retries": 2}
    assert api.body()["jobs"] == [
        {"command": ["a", "1"], "job_id": "fit-1", **shared},
        {"command": ["a", "2"], "job_id": "fit-2", **shared},
    ]
    assert zen("submit", "-f", "a.yaml", "--array", "1-2").code == 2
