"""v1 workers under a `zen up` of their own: jobs over three clusters, while VMs crash, workers
freeze and schedulers are killed at random.

    python -m bench.v1_workers [--jobs 200] [--kills 40] [--seed 1] [--speak rest|gcloud|library]

Every job goes in over the REST of version 1 and is run by bench/v1_worker.py, which knows nothing
of the scheduler. Afterwards: no job lost, none run twice unless a kill explains it, none at once,
no stop at the wrong door, limits kept at every look, no VM and no target left, or exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import yaml

from bench.local import (
    Json,
    LocalStack,
    connected,
    seconds_of,
    state_directory,
    wait_for,
    zen,
)
from bench.report import show
from bench.v1_verdict import (
    CLUSTERS,
    ExpectedJob,
    V1Verdict,
    WorkerChaosLog,
    judge,
    read_ledger,
    table_of,
)
from cli.local.v1_workers import V1_WORKER
from config.load import DEFAULT_PATH
from core.vm import VmState

FINAL = frozenset({"COMPLETED", "FAILED", "STOPPED"})
# Waits on purpose are short; the relations between them are the usual ones.
TIMERS = {
    "heartbeat_s": 1,
    "publish_timeout_s": 1,
    "self_stop_after_s": 8,
    "lost_after_s": 12,
    "canary_s": 1,
    "settling_s": 2,
    "leader_lease_s": 4.5,
    "leader_renew_s": 1.5,
    "observe_s": 0.5,
    "observe_idle_s": 2,
    "boot_timeout_s": 30,
    "stop_grace_s": 10,
    "stop_margin_s": 3,
    "keep_alive_s": 5,
}
WAITS = {"V1_BOOT_WAIT_S": "1.5", "V1_FOUND_WAIT_S": "0.7", "V1_BEAT_S": "1"}
LOOK_S = 0.25
END_S = 1200.0
REST_S = 60.0


def expected_jobs_for(jobs: int, seed: int) -> list[ExpectedJob]:
    """Most run well; some fail, are stopped, keep their VM, share their id with another user's, or
    have a worker that deletes its VM behind the group's back or not at all."""
    dice = random.Random(f"{seed}/jobs")
    names = sorted(CLUSTERS)
    found: list[ExpectedJob] = []
    for n in range(jobs):
        common = {
            "cluster": names[n % len(names)],
            "ticks": dice.randint(8, 30),
            "leave": dice.choice(("group", "group", "instance", "stay")),
        }
        ok = frozenset({"COMPLETED"})
        kind = n % 20
        user, job = "0" if n % 3 else "ada", f"job-{n}"
        if kind == 3:
            expected_job = ExpectedJob(user, job, ends=frozenset({"FAILED"}), exit=1, **common)  # type: ignore[arg-type]
        elif kind == 7:
            ends = frozenset({"STOPPED"})
            expected_job = ExpectedJob(user, job, ends=ends, stop=True, **{**common, "ticks": 6000})  # type: ignore[arg-type]
        elif kind == 11:
            expected_job = ExpectedJob(user, job, ends=ok, keep_alive=True, **common)  # type: ignore[arg-type]
        elif kind == 12:  # the same id as the one that is stopped, of another user
            expected_job = ExpectedJob("bob", f"job-{n - 5}", ends=ok, **common)  # type: ignore[arg-type]
        else:
            expected_job = ExpectedJob(user, job, ends=ok, **common)  # type: ignore[arg-type]
        found.append(expected_job)
    return found


# --- the stack ---------------------------------------------------------------------------


@contextmanager
def v1_stack(
    speak: str, replicas: int, timers: Mapping[str, float] = TIMERS
) -> Iterator[tuple[LocalStack, Path]]:
    """Three clusters with v1 workers that speak in that way (V1_SPEAK), and a directory for their
    lines."""
    with state_directory() as home:
        base = home.parent
        script, config = base / "worker.sh", base / "v1.yaml"
        exports = "".join(f"export {k}={v}\n" for k, v in {**WAITS, "V1_SPEAK": speak}.items())
        worker = Path(__file__).with_name("v1_worker.py")
        script.write_text(f"#!/bin/sh\n{exports}exec {sys.executable} -P {worker}\n")
        words = yaml.safe_load(DEFAULT_PATH.read_text(encoding="utf-8"))
        words["clusters"] = {name: words["clusters"][name] for name in CLUSTERS}
        config.write_text(yaml.safe_dump(words), encoding="utf-8")
        changes = {
            "timers": dict(timers),
            "clusters": {
                name: {"worker": "v1", "trusted_tenants_only": True, "vm_max": most, "vm_min": 0}
                for name, most in CLUSTERS.items()
            },
        }
        os.environ[V1_WORKER] = str(script)
        try:
            options = ("--replicas", str(replicas), "--config", str(config))
            quiet = ("--detach", "--quiet", "--port", "0")
            zen(home, "up", *quiet, *options, "--changes", json.dumps(changes))
            with connected(home) as stack:
                yield stack, base
        finally:
            del os.environ[V1_WORKER]


class CloudAdmin:
    """The pretend cloud, as its owner sees it."""

    def __init__(self, stack: LocalStack) -> None:
        self._http = httpx.Client(base_url=stack.run["sim"], timeout=10, trust_env=False)
        self._stack = stack

    def state(self) -> Json:
        said: Json = self._http.get("/sim/v1/state").json()
        return said

    def running(self) -> list[str]:
        return [vm["name"] for vm in self.state()["vms"] if vm["status"] == "RUNNING"]

    def crash(self, vm: str) -> bool:
        return self._http.post("/sim/v1/faults", json={"kind": "crash", "vm": vm}).is_success

    def freeze(self, vm: str) -> bool:
        for process in self._stack.process("cloud").children():
            try:
                if f"/{vm}-" in process.environ().get("ZEN_VM_DIR", ""):
                    process.send_signal(signal.SIGSTOP)
                    return True
            except psutil.Error:
                continue
        return False

    def left(self) -> list[str]:
        state = self.state()
        vms = [f"VM {vm['name']} is left ({vm['status']})" for vm in state["vms"]]
        groups = [
            f"{mig['name']} still wants {mig['target_size']} VMs, lists {len(mig['members'])}"
            for mig in state["migs"]
            if mig["target_size"] or mig["members"]
        ]
        return vms + groups


class LimitWatch(threading.Thread):
    """Looks at the limits all the time."""

    def __init__(self, cloud: CloudAdmin, story: WorkerChaosLog) -> None:
        super().__init__(daemon=True)
        self._cloud, self._story = cloud, story
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(LOOK_S):
            counts: Counter[str] = Counter()
            for mig in self._cloud.state()["migs"]:
                name = next(c for c in CLUSTERS if f"-{c}-" in mig["name"])
                counts[name] += len(mig["members"])
            for name, count in counts.items():
                self._story.most[name] = max(self._story.most[name], count)


# --- the run -----------------------------------------------------------------------------


def statuses_of(stack: LocalStack, expected_jobs: Sequence[ExpectedJob]) -> dict[str, str]:
    """By the route that the customer API polls."""
    found: dict[str, str] = {}
    for user in sorted({expected_job.user for expected_job in expected_jobs}):
        ids = [expected_job.job for expected_job in expected_jobs if expected_job.user == user]
        body = {"user_id": user, "job_ids": ids}
        answer = stack.client.post("/jobs/get_by_user_and_ids", json=body)
        answer.raise_for_status()
        found.update((f"{user}/{job['job_id']}", job["status"]) for job in answer.json())
    return found


@dataclass(frozen=True, slots=True)
class Kills:
    """How many of which kind, and how often."""

    count: int
    every_s: float = 4.0
    seed: int = 1
    acts: tuple[str, ...] = (*("crash",) * 7, *("freeze",) * 2, "scheduler")
    """By dice."""


class WorkerChaos:
    """Kills at random, stops what is to be stopped, until all jobs have ended."""

    def __init__(
        self, stack: LocalStack, cloud: CloudAdmin, story: WorkerChaosLog, kills: Kills
    ) -> None:
        self._stack, self._cloud, self._story, self._plan = stack, cloud, story, kills
        self._dice = random.Random(f"{kills.seed}/kills")
        self._kills = kills.count
        self._stopped: set[str] = set()

    def run(self, expected_jobs: Sequence[ExpectedJob]) -> dict[str, str]:
        every_s = self._plan.every_s
        next_kill = time.monotonic() + every_s
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            try:
                seen = statuses_of(self._stack, expected_jobs)
            except httpx.HTTPError:
                time.sleep(LOOK_S)  # the replica that we ask was killed, and comes back
                continue
            if len(seen) == len(expected_jobs) and all(status in FINAL for status in seen.values()):
                return seen
            self._stop(expected_jobs, seen)
            if self._kills and time.monotonic() >= next_kill:
                next_kill = time.monotonic() + self._dice.uniform(0.3, 1.7) * every_s
                self._kill()
            time.sleep(LOOK_S)
        return statuses_of(self._stack, expected_jobs)

    def _stop(self, expected_jobs: Sequence[ExpectedJob], seen: Mapping[str, str]) -> None:
        for expected_job in expected_jobs:
            if (
                expected_job.stop
                and expected_job.key not in self._stopped
                and seen.get(expected_job.key) == "RUNNING"
            ):
                path = f"/jobs/gcp/stop/{expected_job.job}/{expected_job.user}"
                if self._stack.client.post(path).is_success:
                    self._stopped.add(expected_job.key)

    def _kill(self) -> None:
        act = self._dice.choice(self._plan.acts)
        if act == "scheduler":
            names = [name for name in self._stack.run["processes"] if name.startswith("scheduler")]
            self._stack.process(self._dice.choice(sorted(names))).kill()
        else:
            running = sorted(self._cloud.running())
            if not running:
                return
            vm = self._dice.choice(running)
            self._story.struck.add(vm)  # before: what it explains may be seen at once
            if not (self._cloud.crash(vm) if act == "crash" else self._cloud.freeze(vm)):
                return
        self._kills -= 1
        self._story.acts[act] += 1


def play(
    stack: LocalStack, base: Path, expected_jobs: Sequence[ExpectedJob], kills: Kills
) -> V1Verdict:
    """All of it on a stack that runs, until no VM is left; judged."""
    story = WorkerChaosLog()
    ledger, cloud = base / "ledger", CloudAdmin(stack)
    watch = LimitWatch(cloud, story)
    watch.start()
    began = time.monotonic()
    for expected_job in expected_jobs:
        answer = stack.client.post("/jobs/gcp", json=expected_job.body(ledger))
        assert answer.status_code == 200, answer.text
    seen = WorkerChaos(stack, cloud, story, kills).run(expected_jobs)
    story.seconds = time.monotonic() - began
    left = _rest(cloud, story)
    watch.over.set()
    watch.join()
    verdict = V1Verdict(
        expected_jobs, seen, read_ledger(ledger), _waits(stack, expected_jobs), story
    )
    verdict.left = left + _alive(stack)
    judge(verdict)
    for expected_job in expected_jobs:
        if any(fault.startswith(f"{expected_job.key} ") for fault in verdict.faults):
            verdict.timelines.append(_timeline(stack, expected_job))
    return verdict


def _timeline(stack: LocalStack, expected_job: ExpectedJob) -> str:
    said = stack.get(f"/jobs/{expected_job.job}/events", user_id=expected_job.user, page_size=500)[
        "events"
    ]
    lines = [f"  {e['at']} {e['event']} {e.get('vm_name') or ''} {e['reason']}" for e in said]
    return "\n".join([f"{expected_job.key}:", *lines])


def _rest(cloud: CloudAdmin, story: WorkerChaosLog) -> list[str]:
    began = time.monotonic()
    try:
        wait_for("no VM left", lambda: None if cloud.left() else True, REST_S, LOOK_S)
    except TimeoutError:
        return cloud.left()
    finally:
        story.rest_s = time.monotonic() - began
    return []


def _alive(stack: LocalStack) -> list[str]:
    """VMs that the scheduler still counts, after it had time to look."""

    def look() -> list[str] | None:
        vms = [vm for vm in stack.get("/vms")["vms"] if not VmState(vm["state"]).gone]
        return None if vms else []

    try:
        return wait_for("all VMs seen gone", look, REST_S, LOOK_S)
    except TimeoutError:
        return [f"the scheduler still counts {vm['name']}" for vm in stack.get("/vms")["vms"]]


def _waits(stack: LocalStack, expected_jobs: Sequence[ExpectedJob]) -> list[float]:
    """Seconds from FOUND_VM to RUNNING are the worker's; these are ours: from the submission."""
    found: list[float] = []
    for expected_job in expected_jobs:
        job = stack.get(f"/jobs/{expected_job.job}", user_id=expected_job.user)
        if job.get("started_at"):
            found.append(seconds_of(job["started_at"]) - seconds_of(job["submitted_at"]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--speak", choices=("rest", "gcloud", "library"), default="rest")
    given = parser.parse_args()
    kills = Kills(given.kills, given.every, given.seed)
    with v1_stack(given.speak, given.replicas) as (stack, base):
        verdict = play(stack, base, expected_jobs_for(given.jobs, given.seed), kills)
    show(table_of(verdict), *verdict.faults[:20], *verdict.timelines[:5])
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
