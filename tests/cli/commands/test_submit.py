"""zen submit: from options and files to one body."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest

from cli.paths import Home, Running
from stores.code_trees import Tree, TreeFile, encode_tree, hash_of, tree_id
from tests.cli.commands.submissions import ANSWER, Job, Zen
from tests.cli.conftest import refusal

if TYPE_CHECKING:
    from tests.cli.conftest import Api

pytestmark = pytest.mark.usefixtures("accepts")


EVERY_OPTION: dict[str, tuple[tuple[str, ...], object]] = {
    "gpu_count": (("--gpus", "2"), 2),
    "gpu_type": (("--gpu-type", "l4"), "l4"),
    "gpu_memory_mb": (("--gpu-memory", "40"), 40960),
    "cpu_cores": (("--cpus", "7.5"), 7.5),
    "memory_mb": (("--memory", "1.5"), 1536),
    "cluster": (("--cluster", "2xl4"), "2xl4"),
    "name": (("--name", "first try"), "first try"),
    "priority": (("--priority", "high"), "high"),
    "tenant_id": (("--tenant", "lab"), "lab"),
    "user_id": (("--user", "ada"), "ada"),
    "job_id": (("--id", "train-7"), "train-7"),
    "max_runtime_minutes": (("--max-runtime", "90s"), 1.5),
    "queue_timeout_s": (("--queue-timeout", "1d"), 86400),
    "stop_grace_s": (("--grace", "5s"), 5),
    "retries": (("--retries", "3"), 3),
    "regions": (("--region", "a", "--region", "b"), ["a", "b"]),
    "regions_denied": (("--not-region", "c"), ["c"]),
    "max_usd_per_hour": (("--max-price", "2.5"), 2.5),
    "deadline": (("--deadline", "2999-01-01T00:00Z"), "2999-01-01T00:00Z"),
    "spot": (("--no-spot",), False),
    "allow_larger": (("--allow-larger",), True),
    "array": (("--array", "1-3"), "1-3"),
    "after": (("--after", "a", "--after", "b:any"), ["a", "b:any"]),
    "group": (("--group", "g"), "g"),
    "replicas": (("--replicas", "2-8"), {"min": 2, "max": 8}),
    "resize_signal": (("--resize-signal", "none"), "none"),
    "reschedulable": (("--not-reschedulable",), False),
    "google_token": (("--google-token",), True),
    "image": (("--image", "python:3.12"), "python:3.12"),
    "working_dir": (("--working-dir", "/app"), "/app"),
    "same_zone": (("--same-zone",), True),
    "replace_members": (("--replace-members",), True),
    "environment": (("--env", "A=1", "-e", "B=x=y"), {"A": "1", "B": "x=y"}),
    "labels": (("--label", "team=vision", "-l", "a=b"), {"team": "vision", "a": "b"}),
}


@pytest.mark.parametrize("field", EVERY_OPTION)
def test_every_option_is_a_field_of_the_body(zen: Zen, api: Api, field: str) -> None:
    """What is sent for each option is pinned: scripts of users rely on it."""
    words, sent = EVERY_OPTION[field]
    assert zen("submit", *words, "--", "true").code == 0
    assert api.body() == {field: sent, "command": ["true"]}


@pytest.mark.parametrize("field", EVERY_OPTION)
def test_an_option_wins_over_the_file(zen: Zen, api: Api, tmp_path: Path, field: str) -> None:
    """A file that says something else of the same field; mappings are merged."""
    words, sent = EVERY_OPTION[field]
    file = tmp_path / "job.yaml"
    other: object = {"KEPT": "1"} if isinstance(sent, dict) and field != "replicas" else "other"
    file.write_text(json.dumps({"command": ["true"], field: other}))
    assert zen("submit", "-f", str(file), *words).code == 0
    merged = {**other, **cast("Any", sent)} if isinstance(other, dict) else sent
    assert api.body() == {"command": ["true"], field: merged}


@pytest.mark.parametrize(("text", "sent"), [("4", 4), ("2-8", {"min": 2, "max": 8})])
def test_replicas_are_a_number_or_a_range(zen: Zen, api: Api, text: str, sent: object) -> None:
    """A range is an elastic job."""
    words = ("--resize-signal", "USR2", "--not-reschedulable")
    zen("submit", "--replicas", text, *words, "--", "true")
    assert api.body() == {
        "replicas": sent,
        "resize_signal": "USR2",
        "reschedulable": False,
        "command": ["true"],
    }


@pytest.mark.parametrize("text", ["x", "2-", "-3", "1-2-3", ""])
def test_other_replicas_are_refused(zen: Zen, text: str) -> None:
    ended = zen("submit", f"--replicas={text}", "--", "true")
    assert ended.code != 0
    assert "--replicas" in ended.err


def test_a_repeat_says_what_became_of_the_job(zen: Zen, api: Api, job: Job) -> None:
    """The id existed: nothing is queued, and the job's own state is told."""
    repeat = httpx.Response(201, json=ANSWER, headers={"Zen-Repeat": "true"})
    api.on("POST", "/api/v1/jobs", lambda _: repeat)
    api.on("GET", "/api/v1/jobs/j-1", {**job, "status": "FAILED", "reason": "exit code 3"})
    lines = zen("submit", "--id", "j-1", "--", "true").out.splitlines()
    assert lines[0] == "j-1"
    assert "nothing new was submitted" in lines[1]
    assert "is FAILED (exit code 3)" in lines[1]
    assert zen("submit", "--id", "j-1", "--json", "--", "true").json["repeated"] is True


def test_a_tenant_that_is_new_is_named(zen: Zen, api: Api) -> None:
    """Also where the key says which tenant it is."""
    answer = {**ANSWER, "tenant_id": "red"}
    told = httpx.Response(201, json=answer, headers={"Zen-New-Tenant": "true"})
    api.on("POST", "/api/v1/jobs", lambda _: told)
    ended = zen("submit", "--", "true")
    assert (ended.code, ended.err) == (0, "zen: tenant red is new: it has no limits\n")


def test_a_deadline_may_be_said_as_a_span(zen: Zen, api: Api) -> None:
    """12h is twelve hours from now; a moment goes on as it was written."""
    began = datetime.now(UTC)
    zen("submit", "--deadline", "12h", "--", "true")
    told = datetime.fromisoformat(api.body()["deadline"])
    assert timedelta(hours=11.9) < told - began < timedelta(hours=12.1)
    zen("submit", "--deadline", "2999-01-01T00:00Z", "--", "true")
    assert api.body()["deadline"] == "2999-01-01T00:00Z"


@pytest.mark.parametrize(
    "option", ["--image", "--cluster", "--id", "--gpu-type", "--region", "--tenant", "--array"]
)
def test_an_empty_value_is_refused(zen: Zen, api: Api, option: str) -> None:
    """An unset variable in a script is not a job without that option."""
    ended = zen("submit", option, "", "--", "true")
    assert ended.code == 2
    assert f"{option}: got ''" in ended.err
    assert not api.requests


@pytest.mark.parametrize("option", ["--max-runtime", "--queue-timeout", "--grace"])
def test_a_span_needs_its_unit(zen: Zen, api: Api, option: str) -> None:
    """90 of what? The option is named, with examples, and nothing is submitted."""
    ended = zen("submit", option, "90", "--", "true")
    assert ended.code == 2
    assert f"{option} 90: say the unit, e.g. 90s, 15m or 2h" in ended.err
    assert not api.requests


def test_options_win_over_a_manifest(zen: Zen, api: Api) -> None:
    """It is read as a submission first."""
    file = Path(__file__).parents[3] / "examples" / "unifiedjob.yaml"
    zen("submit", "-f", str(file), "--gpu-type", "l4", "--id", "mine", "-l", "team=x")
    body = api.body()
    assert (body["job_id"], body["gpu_type"], body["labels"]) == ("mine", "l4", {"team": "x"})
    assert (body["shell"], body["gpu_count"]) == (True, 1)
    zen("submit", "-f", str(file), "--", "echo", "hi")
    assert api.body()["command"] == ["echo", "hi"]
    assert "shell" not in api.body()


def test_a_bad_manifest_names_its_fields(zen: Zen, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("kind: UnifiedJob\nspec: {}\n", encoding="utf-8")
    ended = zen("submit", "-f", str(file))
    assert ended.code == 1
    for field in ("apiVersion", "metadata", "spec.jobSpec"):
        assert f"{field}: got" in ended.err


def test_options_become_fields(zen: Zen, api: Api) -> None:
    """Every option lands in the field of the submission that it names."""
    zen(
        *("submit", "--gpus", "2", "--gpu-type", "a100-40gb", "--cluster", "2xa100-40gb"),
        *("--name", "n", "--priority", "700", "--tenant", "t", "--user", "u", "--id", "my-1"),
        *("--env", "A=1=2", "--label", "k=v", "--max-runtime", "2h", "--queue-timeout", "1d"),
        *("--grace", "90s", "--retries", "3", "--region", "us-west1", "--region", "us-east1"),
        *("--", "python3", "train.py", "--gpus", "x"),
    )
    assert api.body() == {
        "gpu_count": 2,
        "gpu_type": "a100-40gb",
        "cluster": "2xa100-40gb",
        "name": "n",
        "priority": 700,
        "tenant_id": "t",
        "user_id": "u",
        "job_id": "my-1",
        "environment": {"A": "1=2"},
        "labels": {"k": "v"},
        "max_runtime_minutes": 120.0,
        "queue_timeout_s": 86400.0,
        "stop_grace_s": 90.0,
        "retries": 3,
        "regions": ["us-west1", "us-east1"],
        "command": ["python3", "train.py", "--gpus", "x"],
    }


def test_nothing_is_sent_that_was_not_said(zen: Zen, api: Api) -> None:
    """Defaults are the API's business; the command's own options are the command's."""
    zen("submit", "python3", "-c", "print(1)")
    assert api.body() == {"command": ["python3", "-c", "print(1)"]}


def test_shell_makes_one_string(zen: Zen, api: Api) -> None:
    """--shell joins the words into the one line that /bin/sh gets."""
    zen("submit", "--shell", "--", "echo", "$HOME")
    assert api.body() == {"command": ["echo $HOME"], "shell": True}


def test_answer_for_people_and_for_scripts(zen: Zen) -> None:
    """The id comes first; --quiet prints it alone; --json passes the answer through."""
    lines = zen("submit", "true").out.splitlines()
    assert lines[0] == "j-1"
    assert "the cheapest that fits" in lines[1]
    assert "zen logs -f j-1" in lines[2]
    assert zen("submit", "--quiet", "true").out == "j-1\n"
    assert zen("submit", "--json", "true").json == ANSWER


@pytest.mark.parametrize("name", ["job.yaml", "job.json"])
def test_options_win_over_a_file(zen: Zen, api: Api, tmp_path: Path, name: str) -> None:
    """A file gives the fields, options replace single ones, maps are merged by key."""
    text = '{"command": ["a"], "gpu_count": 1, "labels": {"x": "1", "y": "2"}}'
    (tmp_path / name).write_text(text)
    zen("submit", "-f", str(tmp_path / name), "--gpus", "4", "-l", "y=3")
    assert api.body() == {"command": ["a"], "gpu_count": 4, "labels": {"x": "1", "y": "3"}}


def test_a_file_without_a_command_is_judged_by_the_service(
    zen: Zen, api: Api, tmp_path: Path
) -> None:
    """It knows the fields, so it can name the one that is misspelt."""
    (tmp_path / "job.yaml").write_text("comand: [hostname]")
    zen("submit", "-f", str(tmp_path / "job.yaml"))
    assert api.body() == {"comand": ["hostname"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", ":1:5: not YAML"),
        ("- 1", "got a list, expected the fields of one job"),
        ("", "got nothing, expected the fields of one job, e.g. command: [hostname]"),
        ("7", "got one value, expected the fields of one job"),
        (None, "No such file"),
    ],
)
def test_bad_files_are_one_line(zen: Zen, tmp_path: Path, text: str | None, said: str) -> None:
    """A file that cannot be used is named, with what is wrong in it."""
    file = tmp_path / "job.yaml"
    if text is not None:
        file.write_text(text)
    ended = zen("submit", "-f", str(file))
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert str(file) in ended.err
    assert said in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("submit",),
        ("submit", "--env", "novalue", "true"),
        ("submit", "--max-runtime", "soon", "true"),
        ("submit", "--gpus", "two", "true"),
        ("submit", "--nope", "true"),
    ],
)
def test_bad_usage_is_one_line_and_code_2(zen: Zen, api: Api, words: tuple[str, ...]) -> None:
    """What the command line itself gets wrong never reaches the API."""
    ended = zen(*words)
    assert ended.code == 2
    assert ended.err.startswith("zen: ")
    assert ended.err.count("\n") == 1
    assert not api.requests


def test_refusal_is_the_apis_own_line(zen: Zen, api: Api) -> None:
    """Every fault that the API names is shown, exit code 1, nothing on stdout."""
    text = 'gpu_type: got "a1000", expected nearest: a100-40gb'
    api.on("POST", "/api/v1/jobs", lambda _: refusal(422, "bad_input", text))
    ended = zen("submit", "--gpu-type", "a1000", "true")
    assert (ended.code, ended.out, ended.err) == (1, "", f"zen: {text}\n")


def test_image_needs_no_command(zen: Zen, api: Api) -> None:
    """An image knows what to run; a command, a directory and limits go with it."""
    assert zen("submit", "--image", "python:3.12").code == 0
    assert api.body() == {"image": "python:3.12"}
    words = ("--image", "a/b:1", "--working-dir", "/app", "--memory", "2", "--cpus", "1.5")
    zen("submit", *words, "--", "python3", "t.py")
    assert api.body() == {
        "image": "a/b:1",
        "working_dir": "/app",
        "memory_mb": 2048,
        "cpu_cores": 1.5,
        "command": ["python3", "t.py"],
    }


def test_a_directory_is_sent_before_its_job(
    zen: Zen, api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The answer says what was sent; --dry-run and --workdir none send nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print(1)")
    monkeypatch.chdir(project)
    known = tree_id(encode_tree(Tree((TreeFile("train.py", False, 8, (hash_of(b"print(1)"),)),))))
    api.on("GET", f"/api/v1/code/trees/{known}", {})
    api.on("POST", "/api/v1/jobs", lambda _: httpx.Response(201, json=ANSWER))
    done = zen("submit", "--", "python3", "train.py")
    assert api.body()["code"] == known
    assert "  code: 1 files, 8 bytes, nothing new to send\n" in done.out
    told = zen("submit", "--json", "--tenant", "ml", "--", "python3", "train.py").json["workdir"]
    assert (told["tree_id"], told["sent_bytes"]) == (known, 0)
    assert dict(api.requests[-2].url.params) == {"tenant_id": "ml"}
    zen("submit", "--workdir", "none", "--", "python3", "train.py")
    assert "code" not in api.body()
    assert zen("submit", "--workdir", "nowhere", "--", "true").code == 1


def test_on_a_node_a_job_runs_where_it_was_submitted(
    zen: Zen, api: Api, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The directory is sent to the node of this state directory alone, and not for containers."""
    api.on("POST", "/api/v1/jobs", lambda _: httpx.Response(201, json=ANSWER))
    monkeypatch.chdir(tmp_path)
    address = "http://127.0.0.1:8080"
    here = Running(os.getpid(), address, "", "", "", "2026-01-01T00:00:00Z", node=True)
    home.mkdir(parents=True)

    def sent(running: Running, *words: str) -> object:
        Home(home).write(running)
        assert zen("submit", *words, "--", "true").code == 0
        return api.body().get("working_dir")

    assert sent(here) == str(tmp_path)
    assert sent(here, "--workdir", "/srv") == "/srv"
    assert sent(here, "--workdir", "none") is None
    assert sent(here, "--working-dir", "/srv") == "/srv"
    assert sent(here, "--image", "python:3.12") is None
    assert sent(replace(here, node=False)) is None
    assert sent(replace(here, api="http://127.0.0.1:9")) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-price", "nan"), "--max-price: got nan, expected a finite number"),
        (("--memory", "inf"), "--memory: got inf, expected a finite number"),
        (("--env", "A=\udcff"), "expected text in UTF-8"),
    ],
)
def test_values_that_json_cannot_hold_are_named(
    zen: Zen, api: Api, words: tuple[str, str], said: str
) -> None:
    """One line with the field, and nothing is sent."""
    done = zen("submit", *words, "--", "true")
    assert done.code != 0
    assert said in done.err
    assert not api.requests
