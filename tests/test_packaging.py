"""Files that no other test runs: compose, Dockerfile, launcher, lock."""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.events import ExitKind
from agent.main import EXIT_BAD_SETTINGS, EXIT_CODES, STANDARD_OFF_GRACE_S
from agent.state_machine import LAST_WORDS_S
from cli.main import run
from config.load import load_settings
from tests.agent.vm import FakeMetadata

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_compose_runs_two_schedulers_beside_database_bus_and_cloud() -> None:
    """The stack that the README describes."""
    assert set(SERVICES) == {"postgres", "pubsub", "setup", "cloud", "scheduler-1", "scheduler-2"}
    for service in SERVICES.values():
        assert service.get("image") or service.get("build")
        for needed in service.get("depends_on", {}):
            assert needed in SERVICES


def test_compose_environment_is_what_the_settings_read() -> None:
    """A typo in a variable would be refused at start; here it is refused at once."""
    settings = load_settings(None, SERVICES["scheduler-1"]["environment"])
    assert settings.pubsub_host == "pubsub:8085"
    assert settings.cloud["compute_url"] == "http://cloud:8090"
    assert settings.api.host == "0.0.0.0"


@pytest.mark.parametrize("service", ["cloud", "scheduler-1", "scheduler-2"])
def test_compose_commands_exist(service: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command line is one that zen knows."""
    words = [word for word in SERVICES[service]["command"] if not word.startswith("-")]
    command = words[: 2 if words[0] == "sim" else 1]
    assert run([*command, "--help"]) == 0
    assert "Usage: zen" in capsys.readouterr().out


def test_dockerfile_copies_what_is_there_and_does_not_run_as_root() -> None:
    """And its entry point is the command line."""
    text = (ROOT / "Dockerfile").read_text()
    for source in re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE):
        assert (ROOT / source).exists()
    assert re.search(r"^USER zen$", text, re.MULTILINE)
    assert 'ENTRYPOINT ["python", "-m", "cli"]' in text


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """/app of the image: what `COPY . .` takes of a checkout."""
    ignored = [line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().split()]
    place = tmp_path_factory.mktemp("image") / "app"
    shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(*ignored), symlinks=True)
    return place


def in_image(app: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in the image's environment, with the virtual environment of this checkout."""
    assert words[0] == "python"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(app), "HOME": str(app.parent), **variables}
    return subprocess.run(
        [sys.executable, *words[1:]],
        cwd=app,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def commands_of_the_image() -> list[list[str]]:
    """The Dockerfile's own, and the ones that compose gives it."""
    text = (ROOT / "Dockerfile").read_text()
    entry, default = (
        json.loads(re.findall(rf"^{word} (\[.*\])$", text, re.MULTILINE)[0])
        for word in ("ENTRYPOINT", "CMD")
    )
    found = [[*entry, *default]]
    for service in (s for s in SERVICES.values() if s.get("build")):
        if "entrypoint" in service:
            script = service["entrypoint"][-1]
            found += [part.split() for part in re.findall(r"python -m cli [^&|()<>]+", script)]
        else:
            found.append([*entry, *service["command"]])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("words", commands_of_the_image(), ids=" ".join)
def test_what_the_image_is_told_to_run_starts(app: Path, words: list[str]) -> None:
    """With nothing but the files that the image has: each command is known, with its options."""
    ended = in_image(app, *words, "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Usage: zen" in ended.stdout
    for option in (word for word in words if word.startswith("--")):
        assert option in ended.stdout


@pytest.mark.slow
def test_zen_works_without_the_tests(tmp_path: Path) -> None:
    """As the wheel installs it: the commands that run tests are a checkout's."""
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    for room in rooms["find"]["include"]:
        name = room.removesuffix("*")
        shutil.copytree(ROOT / name, tmp_path / name)
    ended = in_image(tmp_path, "python", "-m", "cli", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    listed = {line.split()[0] for line in ended.stdout.splitlines() if line.startswith("  ")}
    assert "submit" in listed
    assert not listed & {"check", "test", "clients"}


@pytest.mark.slow
async def test_the_agent_starts_from_the_same_files(app: Path) -> None:
    """As on a VM: it asks the metadata server who it is, and names all that is missing there."""
    async with FakeMetadata({}).serve() as host:
        words = ("python", "-m", "agent")
        ended = await asyncio.to_thread(in_image, app, *words, GCE_METADATA_HOST=host)
    assert ended.returncode == EXIT_BAD_SETTINGS
    assert "metadata zen-cluster" in ended.stdout + ended.stderr


def test_the_agents_service_leaves_jobs_their_time() -> None:
    """SIGTERM to the agent alone, more time than it gives jobs, and no restart of an agent that has
    powered its VM off or cannot read its settings."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.read(ROOT / "deploy" / "zen-agent.service")
    service = unit["Service"]
    assert service["ExecStart"].endswith("/python -m agent")
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"]) > STANDARD_OFF_GRACE_S + LAST_WORDS_S
    kept = {EXIT_BAD_SETTINGS, EXIT_CODES[ExitKind.POWER_OFF]}
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == kept


def test_lock_pins_hashes_and_names_no_host() -> None:
    """pip and uv read the same file, from whatever index the machine uses."""
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    pins = re.findall(r"^([a-z0-9._-]+)==\S+", text, re.MULTILINE)
    assert len(pins) > 80
    assert text.count("--hash=sha256:") > len(pins)


@pytest.mark.parametrize("script", ["zen", ".ci/run"])
def test_scripts_are_executable_and_parse(script: str) -> None:
    """With the shell that their first line names."""
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    shell = "bash" if "bash" in path.read_text().splitlines()[0] else "sh"
    subprocess.run([shutil.which(shell) or shell, "-n", str(path)], check=True)


def test_launcher_names_what_is_missing_when_python_is_too_old(tmp_path: Path) -> None:
    """One line, no traceback, and nothing is made."""
    shutil.copy(ROOT / "zen", tmp_path / "zen")
    (tmp_path / "requirements.lock").write_text("")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "dirname", "cat", "mkdir", "rm", "sleep", "cmp"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    old = tools / "python3"
    old.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.8.1' && exit 0\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        [str(tmp_path / "zen"), "up"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed, found: Python 3.8.1" in done.stderr
    assert not (tmp_path / ".venv").exists()
    assert not (tmp_path / ".venv.lock").exists()


def test_the_wheel_has_every_room_and_is_for_no_index() -> None:
    """`pip install .` brings all that `zen` imports and reads; `zen` stays free for the client."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    tools = project["tool"]["setuptools"]
    assert {name.removesuffix("*") for name in tools["packages"]["find"]["include"]} == rooms
    assert "zen" not in rooms
    assert "Private :: Do Not Upload" in project["project"]["classifiers"]
    data = {
        f"{room}/{path.name}"
        for room in rooms
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix in {".yaml", ".mako", ".sql", ".json", ".html"}
    }
    packed = {
        f"{room}/{path.name}"
        for room, patterns in tools["package-data"].items()
        for pattern in patterns
        for path in (ROOT / room).glob(pattern)
    }
    assert data == packed
