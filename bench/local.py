"""A local stack for benchmarks: `zen up` in a directory of its own, gone afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from db.embedded.server import EmbeddedPostgres

ROOT = Path(__file__).resolve().parent.parent
FINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
POLL_S = 0.01
STEP_TIMEOUT_S = 120.0
END_S = 20.0
ENDING = (signal.SIGINT, signal.SIGTERM)
Json = dict[str, Any]
T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], seconds: float, every_s: float = POLL_S) -> T:
    """The first answer that is not None."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (seen := look()) is not None:
            return seen
        time.sleep(every_s)
    raise TimeoutError(f"not within {seconds:g} s: {what}")


@dataclass(frozen=True, slots=True)
class LocalStack:
    """One running `zen up`, and a client that keeps its connection."""

    home: Path
    client: httpx.Client

    @property
    def run(self) -> Json:
        """As the last start of a part left it: numbers of processes change."""
        said: Json = json.loads((self.home / "run.json").read_text(encoding="utf-8"))
        return said

    def process(self, part: str) -> psutil.Process:
        """The process of a part: scheduler, bus, cloud, postgres."""
        return psutil.Process(self.run["processes"][part])

    def schedulers(self) -> list[psutil.Process]:
        """Its replicas."""
        names = [name for name in self.run["processes"] if name.startswith("scheduler")]
        return [self.process(name) for name in names]

    @property
    def database_url(self) -> str:
        """Travels by environment, so that is where to ask."""
        return self.schedulers()[0].environ()["DATABASE_URL"]

    def get(self, path: str, **params: Any) -> Json:
        answer = self.client.get(f"/api/v1{path}", params=params)
        answer.raise_for_status()
        said: Json = answer.json()
        return said

    def submit(self, *command: str, **fields: Any) -> str:
        answer = self.client.post("/api/v1/jobs", json={"command": list(command), **fields})
        answer.raise_for_status()
        return str(answer.json()["job_id"])

    def finish(self, job_id: str, seconds: float = 60) -> Json:
        """The job once it has ended well; an error if it ended otherwise."""

        def look() -> Json | None:
            job = self.get(f"/jobs/{job_id}")
            return job if job["status"] in FINAL else None

        job = wait_for(f"the end of {job_id}", look, seconds)
        if job["status"] != "SUCCEEDED":
            raise RuntimeError(f"{job_id} ended as {job['status']}: {job.get('reason')}")
        return job

    def events(self, job_id: str) -> list[Json]:
        return list(self.get(f"/jobs/{job_id}/events", page_size=500)["events"])

    def log(self, job_id: str) -> str:
        return self.client.get(f"/api/v1/jobs/{job_id}/logs").text

    def agents(self) -> list[psutil.Process]:
        """The agents of the pretend VMs: direct children of the cloud."""
        children = self.process("cloud").children()
        return [child for child in children if "agent" in child.cmdline()]


# --- nothing is left behind -------------------------------------------------------------


@contextlib.contextmanager
def _signals(handler: Any) -> Iterator[None]:
    """Ctrl-C and a polite kill are handled so, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """What was started is stopped, however often Ctrl-C is pressed."""
    with _signals(signal.SIG_IGN):
        yield


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A directory that is gone afterwards, also if a signal ends the work in it."""
    # A shell that starts a bench in the background lets it ignore Ctrl-C.
    with _signals(signal.default_int_handler):
        directory = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            yield directory
        finally:
            with undisturbed():
                shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def postgres_server(prefix: str, *, fsync: bool) -> Iterator[tuple[Path, str]]:
    """A directory with a database server of its own in it, and its URL."""
    with scratch(prefix) as directory:
        server = EmbeddedPostgres(directory / "pg", fsync=fsync)
        try:
            yield directory, server.start()
        finally:
            with undisturbed():
                server.stop()


def ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code; one that does not end in time is killed."""
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


# --- a whole stack ----------------------------------------------------------------------


def zen(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in that state directory; an error with its own words if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", *words],
        env={**os.environ, "ZEN_HOME": str(home)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=STEP_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"zen {' '.join(words)}: {done.stdout}{done.stderr}")
    return done


@contextlib.contextmanager
def state_directory() -> Iterator[Path]:
    """A home for a stack; whatever still runs there is stopped before it is removed."""
    with scratch("zen-bench-") as base:
        try:
            yield base / "home"
        finally:
            with undisturbed():
                zen(base / "home", "down")


@contextlib.contextmanager
def local_stack(
    changes: Mapping[str, Any] | None = None, replicas: int = 1
) -> Iterator[LocalStack]:
    """Up on the default configuration, with `changes` merged over it."""
    with state_directory() as home:
        words = ["up", "--detach", "--quiet", "--port", "0", "--replicas", str(replicas)]
        zen(home, *words, *(["--changes", json.dumps(changes)] if changes else []))
        with connected(home) as stack:
            yield stack


@contextlib.contextmanager
def connected(home: Path) -> Iterator[LocalStack]:
    """The stack that runs there."""
    running = json.loads((home / "run.json").read_text(encoding="utf-8"))
    key = Path(running["key_file"]).read_text(encoding="utf-8").strip()
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(
        base_url=running["api"], timeout=30, trust_env=False, headers=headers
    ) as client:
        yield LocalStack(home, client)


def seconds_of(moment: str) -> float:
    """An API time as seconds since the epoch."""
    return datetime.fromisoformat(moment).timestamp()


def started_at(process: psutil.Process) -> float:
    """When it was started, to 10 ms; psutil's own answer is only as exact as the boot second."""
    stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    ticks = int(stat.rpartition(")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s
