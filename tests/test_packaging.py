"""Files that no other test runs: compose, Dockerfile, launcher, lock."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import run
from config.load import load_settings

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_compose_runs_two_schedulers_beside_database_bus_and_cloud() -> None:
    """The stack that the README promises."""
    assert set(SERVICES) == {"postgres", "pubsub", "setup", "cloud", "scheduler-1", "scheduler-2"}
    for service in SERVICES.values():
        assert service.get("image") or service.get("build")
        for needed in service.get("depends_on", {}):
            assert needed in SERVICES


def test_compose_environment_is_what_the_settings_read() -> None:
    """A typo in a variable would be refused at start; here it is refused at once."""
    settings = load_settings(None, SERVICES["scheduler-1"]["environment"])
    assert settings.pubsub_host == "pubsub:8085"
    assert settings.compute_url == "http://cloud:8090"
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
