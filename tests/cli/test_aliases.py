"""tgpu and gpu-cli: other names for the same commands."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from cli.aliases import run_as, translated
from cli.output.client_words import GPU_CLI, TGPU
from core.client_statuses import WORDS, priority_of_tgpu
from core.job import JobStatus
from core.queueing import PriorityClass, class_of
from tests.cli.conftest import Ended, refusal

if TYPE_CHECKING:
    from tests.cli.conftest import Api

ROOT = Path(__file__).parents[2]
ANSWER = {"job_id": "j-1", "user_id": "0", "status": "submitted", "message": "m", "cluster": "1xl4"}
Run = Callable[..., Ended]


@pytest.fixture
def call(api: Api, capfd: pytest.CaptureFixture[str]) -> Run:
    api.on("POST", "/api/v1/jobs", lambda _: httpx.Response(201, json=ANSWER))

    def run(name: str, *words: str) -> Ended:
        code = run_as(name, words)
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return run


def job(status: JobStatus) -> dict[str, Any]:
    return {
        "job_id": f"j-{status.lower()}",
        "user_id": "0",
        "name": "n",
        "status": status,
        "state": WORDS[status].multi_tenant,
        "gpu_count": 2,
        "priority": 500,
        "tenant_id": "t",
        "submitted_at": "2026-01-31T12:00:00.000Z",
    }


def test_tgpu_submit(call: Run, api: Api) -> None:
    """`cmd=` is a command line that becomes words, and priority 5 is the middle of ours."""
    ended = call(TGPU, "submit", "--gpus", "2", "--priority", "5", "--", "cmd=python train.py")
    assert ended.code == 0, ended.err
    assert api.body() == {"gpu_count": 2, "priority": 500, "command": ["python", "train.py"]}
    assert ended.out.startswith("j-1\n")


def test_gpu_cli_submit(call: Run, api: Api) -> None:
    """Its options are ours; its priorities are ours already."""
    words = ("--name", "train", "--gpus", "4", "--priority", "700", "--tenant-id", "vision")
    ended = call(GPU_CLI, "submit", *words, "--", "python", "train.py", "--tenant-id", "x")
    assert ended.code == 0, ended.err
    assert api.body() == {
        "name": "train",
        "gpu_count": 4,
        "priority": 700,
        "tenant_id": "vision",
        "command": ["python", "train.py", "--tenant-id", "x"],
    }


def test_quoting_follows_the_shell_without_a_shell(call: Run, api: Api) -> None:
    """Metacharacters in cmd= are plain characters of words."""
    line = "cmd=sh -c 'echo $HOME; rm -rf /' && `id` > x"
    call(TGPU, "submit", "--", line)
    words = ["sh", "-c", "echo $HOME; rm -rf /", "&&", "`id`", ">", "x"]
    assert api.body() == {"command": words}


def test_broken_quotes_are_a_usage_error(call: Run, api: Api) -> None:
    """One line under the name that was called, nothing is sent."""
    ended = call(TGPU, "submit", "--", "cmd=echo 'a")
    assert (ended.code, api.requests) == (2, [])
    assert ended.err.startswith("tgpu: ")
    assert "no closing quotation" in ended.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cancel", "a", "b"], ["stop", "a", "b"]),
        (["list", "--json"], ["list", "--words", "tgpu", "--json"]),
        (["list", "--tenant-id=t"], ["list", "--words", "tgpu", "--tenant=t"]),
        (["submit", "--priority=7", "--", "a"], ["submit", "--priority=700", "--", "a"]),
        (["submit", "--priority", "x", "a"], ["submit", "--priority", "x", "--", "a"]),
        (["submit", "-g2", "--wait", "a", "--priority", "1"],
         ["submit", "-g2", "--wait", "--", "a", "--priority", "1"]),
        (["submit", "cmd=a b"], ["submit", "--", "a", "b"]),
        (["submit", "--", "x", "cmd=a b"], ["submit", "--", "x", "cmd=a b"]),
        (["submit", "--file", "f.yaml"], ["submit", "--file", "f.yaml"]),
        (["status"], ["status"]),
        ([], []),
    ],
)  # fmt: skip
def test_translation(words: list[str], expected: list[str]) -> None:
    """Commands and options of theirs become ours; a job's own words are left alone."""
    assert translated(TGPU, words) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--api-url", "http://h:1", "get", "j"], ["show", "--api", "http://h:1", "j"]),
        (["--tenant-id=t", "list", "--state", "running"],
         ["list", "--tenant=t", "--state", "running"]),
        (["status", "--tenant-id", "t"], ["status"]),
        (["cancel", "--tenant-id=t", "j"], ["stop", "j"]),
        (["create-tenant", "--api-url=http://h:1", "--name", "a b"],
         ["create-tenant", "--api=http://h:1", "--name", "a b"]),
        (["submit", "--script", "echo hi; sleep 1", "--gpus", "1"],
         ["submit", "--gpus", "1", "--shell", "--", "echo hi; sleep 1"]),
        (["submit", "--name", "n"], ["submit", "--name", "n", "--shell", "--", "nvidia-smi"]),
        (["submit", "-f", "j.yaml"], ["submit", "-f", "j.yaml"]),
        (["--tenant-id", "t", "submit", "--", "x"], ["submit", "--tenant", "t", "--", "x"]),
    ],
)  # fmt: skip
def test_translation_of_gpu_cli(words: list[str], expected: list[str]) -> None:
    """Its shared options stand before or behind the command; --script is a line for the shell."""
    assert translated(GPU_CLI, words) == expected


def test_a_script_beside_a_command_is_a_usage_error(call: Run, api: Api) -> None:
    """Which of the two runs would be a guess."""
    ended = call(GPU_CLI, "submit", "--script", "true", "--", "false")
    assert (ended.code, api.requests) == (2, [])
    assert "--script" in ended.err


def test_create_tenant(call: Run, api: Api) -> None:
    """The last line ends with the id, which scripts cut out."""
    api.on("POST", "/api/v1/tenants", lambda _: httpx.Response(201, json={"id": "tenant-1"}))
    words = ("--name", "research team", "--max-gpus", "8", "--priority", "high")
    ended = call(GPU_CLI, "create-tenant", *words)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "Tenant ID: tenant-1")
    assert api.body() == {"name": "research team", "max_gpus": 8, "priority_tier": "high"}


@pytest.mark.parametrize(("name", "state"), [(TGPU, "finished"), (GPU_CLI, "completed")])
def test_list_by_state(call: Run, api: Api, name: str, state: str) -> None:
    """Each name filters by its own words."""
    api.on("GET", "/api/v1/jobs", {"jobs": [], "total": 0, "next_page_token": None})
    assert call(name, "list", "--state", state).code == 0
    asked = api.query()
    assert asked.get("state", asked.get("status")) in ("completed", "SUCCEEDED")
    assert call(TGPU, "list", "--state", "nonsense").code == 2


def test_cancel(call: Run, api: Api) -> None:
    """`cancel ID` stops the job."""
    told = {"job_id": "a", "status": "cancelled", "message": "cancelled: it had not started"}
    api.on("POST", "/api/v1/jobs/a/stop", told)
    ended = call(TGPU, "cancel", "a")
    assert (ended.code, ended.out) == (0, "a: cancelled: it had not started\n")
    api.on("POST", "/api/v1/jobs/b/stop", lambda _: refusal(404, "not_found", "no job b"))
    assert call(GPU_CLI, "cancel", "b").code == 1


@pytest.mark.parametrize("name", [TGPU, GPU_CLI])
def test_list_speaks_their_words(call: Run, api: Api, name: str) -> None:
    """Each name has its own vocabulary for states; our status stays beside it in JSON."""
    jobs = [job(status) for status in JobStatus]
    api.on("GET", "/api/v1/jobs", {"jobs": jobs, "total": 10, "next_page_token": None})
    told = call(name, "list", "--tenant-id", "t", "--json").json["jobs"]
    assert api.query()["tenant_id"] == "t"
    for row in told:
        words = WORDS[JobStatus(row["status"])]
        assert row["state"] == (words.tgpu if name == TGPU else words.multi_tenant)
    table = call(name, "list").out
    assert ("finished" in table) == (name == TGPU)
    assert "j-queued" in table


def test_tgpu_shows_its_own_words(call: Run, api: Api) -> None:
    """States and priorities are tgpu's in `list` and `show`; `zen show` keeps ours."""
    found = {**job(JobStatus.PROVISIONING), "attempt": 0, "reason": "", "cluster": "1xl4"}
    events = [{"at": found["submitted_at"], "event": "admitted", "to": "PROVISIONING",
               "attempt": 0, "reason": "admitted"}]  # fmt: skip
    api.on("GET", "/api/v1/jobs", {"jobs": [found], "total": 1, "next_page_token": None})
    api.on("GET", "/api/v1/jobs/a", found)
    api.on("GET", "/api/v1/jobs/a/events", {"events": events, "next_after": None})
    api.on("GET", "/api/v1/jobs/a/attempts", {"attempts": []})
    api.on("GET", "/api/v1/jobs/a/waits", {"waits": []})
    (listed,) = call(TGPU, "list", "--json").json["jobs"]
    assert (listed["state"], listed["priority"]) == ("queued", 5)
    told = call(TGPU, "show", "a")
    assert told.code == 0, told.err
    assert "status:       queued" in told.out
    assert "priority 5\n" in told.out
    assert "PROVISIONING" not in told.out
    assert "PROVISIONING" in call(GPU_CLI, "show", "a").out


def test_errors_carry_the_name(call: Run) -> None:
    """What is wrong is said under the name that was called."""
    assert call(TGPU, "nonsense").err.startswith("tgpu: ")
    assert "Usage: gpu-cli submit" in call(GPU_CLI, "submit", "--help").out


def test_priorities_keep_their_order_and_class() -> None:
    """1–4 are low, 5–9 normal, 10–19 high, 20 and more urgent; larger is never smaller."""
    scale = [priority_of_tgpu(number) for number in range(200)]
    assert scale == sorted(scale)
    assert scale[-1] == 9999
    expected = {0: 0, 4: 0, 5: 1, 9: 1, 10: 2, 19: 2, 20: 3, 150: 3}
    for number, kind in expected.items():
        assert class_of(priority_of_tgpu(number)) is PriorityClass(kind)


def test_names_are_installed_and_linked() -> None:
    """As console scripts, and beside the launcher of a checkout."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert (scripts["tgpu"], scripts["gpu-cli"]) == ("cli.aliases:tgpu", "cli.aliases:gpu_cli")
    for name in (TGPU, GPU_CLI):
        assert os.readlink(ROOT / name) == "zen"  # noqa: PTH115


@pytest.mark.slow
def test_launcher_knows_its_names() -> None:
    """`./tgpu` is `tgpu`, wherever it is called from."""
    ended = subprocess.run(
        [ROOT / TGPU, "list", "--help"], cwd="/", capture_output=True, text=True, check=True
    )
    assert "Usage: tgpu list" in ended.stdout
