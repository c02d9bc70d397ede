"""A real stack for tests: `zen up` in a directory of its own, and the ways people talk to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import google.cloud.pubsub_v1 as pubsub_v1
import httpx
import psutil
import yaml

from cli.paths import alive

ROOT = Path(__file__).parent.parent.parent
CLUSTERS = ("1xl4", "1xt4", "2xa100-40gb")
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
# Everything that waits on purpose, short; the relations between the spans are the usual ones.
SEVERAL_TENANTS = {"ZEN_SINGLE_TENANT": "false"}
"""Also where the tests are not root: no test is about what such jobs read of each other."""
QUICK = {
    "timers": {
        "heartbeat_s": 1,
        "publish_timeout_s": 1,
        "self_stop_after_s": 4,
        "lost_after_s": 7,
        "canary_s": 1,
        "settling_s": 2,
        "leader_lease_s": 4.5,
        "leader_renew_s": 1.5,
        "observe_idle_s": 3,
    }
}

Json = dict[str, Any]


T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], seconds: float = 30) -> T:
    """The first answer that is not None; an assertion that names what never came."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (seen := look()) is not None:
            return seen
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


def small_config(target: Path) -> Path:
    """The default configuration with few clusters and regions, one of the clusters spot."""
    words = yaml.safe_load((ROOT / "config" / "zen.yaml").read_text())
    words["clusters"] = {
        name: {**words["clusters"][name], "regions": words["clusters"][name]["regions"][:3]}
        for name in CLUSTERS
    }
    del words["timers"]  # what a file sets, a local run does not shorten
    words["clusters"]["1xt4"]["spot"] = True
    words["clusters"]["2xa100-40gb"]["vm_max"] = 2
    target.write_text(yaml.safe_dump(words))
    return target


def shipped_config(target: Path) -> Path:
    """The default configuration with all its clusters, and the timers of a local run."""
    words = yaml.safe_load((ROOT / "config" / "zen.yaml").read_text())
    del words["timers"]
    target.write_text(yaml.safe_dump(words))
    return target


class Stack:
    """One `zen up` in a directory of its own."""

    def __init__(
        self,
        home: Path,
        config: Path,
        environ: Mapping[str, str] | None = None,
        changes: Json | None = None,
    ) -> None:
        self.home = home
        self.environ = {**os.environ, **SEVERAL_TENANTS, "ZEN_HOME": str(home), **(environ or {})}
        changed = json.dumps({**QUICK, **(changes or {})})
        self.words = ("up", "--port", "0", "--config", str(config), "--changes", changed)

    def up(self, replicas: int = 1) -> None:
        """Runs with so many schedulers, also if it did not, or with others."""
        if (self.home / "run.json").exists():
            names = [name for name in self.run["processes"] if name.startswith("scheduler")]
            if alive(self.run["pid"]) and len(names) == replicas:
                return
            self.zen("down")
        self.zen(*self.words, "--detach", "--quiet", "--replicas", str(replicas))

    def zen(
        self, *args: str, check: bool = True, timeout: float = 60, cwd: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user would."""
        done = subprocess.run(
            [sys.executable, "-m", "cli", *args],
            env={**self.environ, "PYTHONPATH": str(ROOT)},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        if check:
            assert done.returncode == 0, f"zen {' '.join(args)}: {done.stdout}{done.stderr}"
        return done

    @property
    def run(self) -> Json:
        return json.loads((self.home / "run.json").read_text())  # type: ignore[no-any-return]

    @property
    def key(self) -> str:
        """The owner's."""
        return Path(self.run["key_file"]).read_text().strip()

    @property
    def api(self) -> str:
        """The address, with the owner's key: all that a client of HTTP needs."""
        return str(self.run["api"]).replace("://", f"://zen:{self.key}@", 1)

    def get(self, path: str, **params: Any) -> Json:
        answer = httpx.get(f"{self.api}/api/v1{path}", params=params, timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    def submit(self, *command: str, **fields: Any) -> str:
        """Over REST."""
        body = {"command": list(command), **fields}
        answer = httpx.post(f"{self.api}/api/v1/jobs", json=body, timeout=10)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])

    def job(self, job_id: str) -> Json:
        return self.get(f"/jobs/{job_id}")

    def history(self, job_id: str) -> list[str]:
        """The states it went through."""
        return [event["to"] for event in self.events(job_id) if event["from"] != event["to"]]

    def events(self, job_id: str) -> list[Json]:
        return list(self.get(f"/jobs/{job_id}/events", page_size=500)["events"])

    def log(self, job_id: str) -> str:
        answer = httpx.get(f"{self.api}/api/v1/jobs/{job_id}/logs", timeout=10)
        return answer.text

    def wait(self, job_id: str, *statuses: str, seconds: float = 40) -> Json:
        """The job once it is in one of the statuses (any final one by default)."""

        def look() -> Json | None:
            seen = self.job(job_id)
            return seen if seen["status"] in (statuses or FINAL) else None

        try:
            return wait_for(f"{job_id} in {statuses or FINAL}", look, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.job(job_id)}\n{self.events(job_id)}") from None

    def wait_through_restart(self, job_id: str, seconds: float = 60) -> Json:
        """As wait(), while the API itself may be away for a moment."""

        def look() -> Json | None:
            seen = self.try_get(f"/jobs/{job_id}")
            return seen if seen is not None and seen["status"] in FINAL else None

        return wait_for(f"{job_id} final", look, seconds)

    def wait_for_term_after(self, term: int, seconds: float = 60) -> Json:
        """The status, once another reign has begun."""

        def look() -> Json | None:
            seen = self.try_get("/status")
            return seen if seen is not None and seen["term"] > term else None

        return wait_for(f"a term after {term}", look, seconds)

    def try_get(self, path: str) -> Json | None:
        """None while the API is away."""
        try:
            return self.get(path)
        except (httpx.HTTPError, AssertionError):
            return None

    def submit_held(self, **fields: Any) -> tuple[str, Path]:
        """A job that runs until the file is there: nobody needs to guess for how long."""
        script = 'while [ ! -e "$ZEN_CHECKPOINT_DIR/release" ]; do sleep 0.1; done'
        return self.held(self.submit("sh", "-c", script, **fields))

    def held(self, job_id: str) -> tuple[str, Path]:
        """The file whose presence lets the job end: among its checkpoints, which it can see."""
        job = self.job(job_id)
        node = self.home / "node"
        store = (node if node.exists() else self.home) / "store"
        return job_id, store / "checkpoints" / job["tenant_id"] / job[
            "user_id"
        ] / job_id / "release"

    def processes(self) -> list[psutil.Process]:
        """Every process that has to do with this stack."""
        return processes_about(str(self.home))


def processes_about(home: str) -> list[psutil.Process]:
    """Found by command line, environment or open directory, so that no orphan hides."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            environment = process.environ()
            about = home in words or any(home in value for value in environment.values())
            if (about or home in process.cwd()) and process.pid != os.getpid():
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return [p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@contextmanager
def stack(
    *,
    environ: Mapping[str, str] | None = None,
    replicas: int = 1,
    config: Callable[[Path], Path] = small_config,
    changes: Json | None = None,
) -> Iterator[Stack]:
    """A stack that is up; afterwards it is down and nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="zen-e2e-") as directory:
        file = config(Path(directory) / "zen.yaml")
        made = Stack(Path(directory) / "home", file, environ, changes)
        try:
            made.up(replicas)
            yield made
        finally:
            made.zen("down", check=False)
            for process in made.processes():
                process.kill()


@contextmanager
def away(stack: Stack, part: str) -> Iterator[None]:
    """The part is killed, and the supervisor held so that it stays away."""
    supervisor, victim = stack.run["pid"], stack.run["processes"][part]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(victim, signal.SIGKILL)
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)


async def publish(stack: Stack, topic: str, body: bytes, **attributes: str) -> str:
    """With Google's own client, as an upstream pipeline would."""
    bus, project = stack.run["bus"], project_of(stack)
    return await asyncio.to_thread(publish_bytes, bus, project, topic, body, **attributes)


def publish_bytes(bus: str, project: str, topic: str, body: bytes, **attributes: str) -> str:
    """To the bus at that address; returns the message's id."""
    os.environ["PUBSUB_EMULATOR_HOST"] = bus
    try:
        client = pubsub_v1.PublisherClient()
    finally:
        del os.environ["PUBSUB_EMULATOR_HOST"]
    path = client.topic_path(project, topic)
    message_id = str(client.publish(path, body, **attributes).result(timeout=10))
    client.stop()
    return message_id


def project_of(stack: Stack) -> str:
    return str(yaml.safe_load((stack.home / "zen.yaml").read_text())["project"])
