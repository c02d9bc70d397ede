"""Where examples are run: a stack with the shipped configuration, and a directory like a user's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.sandbox import SHARED_DIRECTORY
from tests.e2e.stack import SEVERAL_TENANTS, wait_for
from tests.examples.reading import ROOT

COMMAND_S = 120.0
JOBS_S = 40.0
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
MOVING = ("PROVISIONING", "ASSIGNED", "STARTING")
FOLLOWS = re.compile(
    r"--watch|logs -f bend|"
    r"(?:zen|tgpu|gpu-cli) (?:up|node|serve|sim serve)\b(?!.*(?:--detach|-d\b))"
)
"""Commands that go on until Ctrl-C, or may."""
STACKS = re.compile(r"\b(?:zen|tgpu|gpu-cli) (?:up|down|node|demo)\b")
"""Commands that begin or end a stack get one of their own."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that ended."""

    code: int
    output: str
    """What a terminal would show."""


@dataclass(slots=True)
class Workspace:
    """A user's directory, the launchers on PATH, and the stack that they speak to."""

    directory: Path
    home: Path
    environ: Mapping[str, str]
    names: dict[str, str] = field(default_factory=dict)
    """What an example says → what it is here: ids that were printed, addresses, files."""

    def run(self, command: str) -> Ran:
        """One example, as a shell would."""
        text = command
        for said, real in sorted(self.names.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(said, real)
        if not FOLLOWS.search(text):
            return self._shell(text)
        said = ""
        for part in text.split("&&"):
            done = (self._follow if FOLLOWS.search(part) else self._shell)(part.strip())
            said += done.output
            if done.code:
                return Ran(done.code, said)
        return Ran(0, said)

    def elsewhere(self, home: Path) -> Workspace:
        """The same workspace with a stack of its own, which is not up yet."""
        return replace(self, home=home, environ={**self.environ, "ZEN_HOME": str(home)})

    def _shell(self, text: str) -> Ran:
        try:
            done = subprocess.run(
                ("sh", "-c", text),
                cwd=self.directory,
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            return Ran(124, f"{late.stdout!r}: not over after {COMMAND_S:g} s")
        return Ran(done.returncode, done.stdout)

    def _follow(self, text: str) -> Ran:
        """Interrupted after its first words, or once it is ready."""
        process = subprocess.Popen(
            ("sh", "-c", text),
            cwd=self.directory,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        guard = threading.Timer(COMMAND_S, os.killpg, (process.pid, signal.SIGKILL))
        guard.start()
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "ready" in line or "--watch" in text or "logs -f" in text:
                break
        # Again and again: of several commands the first may end well, and the next begins.
        rest = threading.Thread(target=lambda: said.extend(process.stdout or ()))
        rest.start()
        while rest.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            rest.join(1)
        guard.cancel()
        code = process.wait()
        return Ran(0 if code in (0, 130, -signal.SIGINT) else code, "".join(said))

    @property
    def running(self) -> dict[str, Any]:
        return json.loads((self.home / "run.json").read_text())  # type: ignore[no-any-return]

    def zen(self, *arguments: str) -> Ran:
        """A command of our own, between the examples."""
        done = subprocess.run(
            (sys.executable, "-m", "cli", *arguments),
            cwd=ROOT,
            env=dict(self.environ),
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout + done.stderr)

    def failed_jobs(self) -> list[str]:
        """Jobs that failed, with their reason, once no other is on its way to a VM (or not in
        time: those wait for what the examples before them made scarce)."""

        def settled() -> bool | None:
            left = [job for job in self._jobs() if job["status"] not in FINAL]
            return None if any(job["status"] in MOVING for job in left) else True

        with contextlib.suppress(AssertionError):
            wait_for("jobs that have ended", settled, JOBS_S)
        return [
            f"{j['job_id']}: {j.get('reason')}" for j in self._jobs() if j["status"] == "FAILED"
        ]

    def _jobs(self) -> list[dict[str, Any]]:
        return list(json.loads(self.zen("jobs", "--json").output)["jobs"])


@contextlib.contextmanager
def workspace(changes: Mapping[str, Any] | None = None) -> Iterator[Workspace]:
    """A workspace with a stack that is up; afterwards nothing of it is left."""
    # Examples that follow are ended by SIGINT, which what runs in the background may ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="zen-examples-") as name:
        place = Path(name)
        directory, programs, home = place / "workspace", place / "bin", place / "home"
        directory.mkdir()
        programs.mkdir()
        for program in ("zen", "tgpu", "gpu-cli"):
            (programs / program).symlink_to(ROOT / program)
        for entry in ("zen", "examples", "config"):
            (directory / entry).symlink_to(ROOT / entry)
        environ = {
            **os.environ,
            **SEVERAL_TENANTS,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "ZEN_HOME": str(home),
            "ZEN_PYTHON": sys.executable,
            SHARED_DIRECTORY: str(directory),
            "ZEN_API__PORT": "0",  # of `zen serve`; several stacks run at once
            "COLUMNS": "160",  # as wide as the documents
        }
        made = Workspace(directory, home, environ)
        told = ("--changes", json.dumps(changes)) if changes else ()
        try:
            up = made.zen("up", "--detach", "--quiet", "--port", "0", *told)
            assert up.code == 0, up.output
            made.names["http://127.0.0.1:8080"] = str(made.running["api"])
            yield made
        finally:
            made.zen("down")
