"""What the demo does: its jobs, its two misfortunes, what it shows, and what must come of it."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cli.client import Client, Json, path
from cli.commands.jobs import jobs_table, short_vm
from cli.output.follow import Follower
from cli.output.printing import console, fitted, money, say
from cli.paths import ROOT
from core.clock import SystemClock
from core.job import FINAL

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

LIMIT_S = 70.0
POLL_S = 0.4
EVENTS_SHOWN = 10
SPOT_CLUSTER = "1xl4"
SHORT_CLUSTER = "2xa100-40gb"
VICTIM = "spot-1"
PREEMPT_AT = 0.25
"""The share of its steps after which the victim loses its VM."""
CHANGES = {"clusters": {SPOT_CLUSTER: {"spot": True}}}


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job of the demo."""

    job_id: str
    cluster: str
    gpus: int
    steps: int = 0
    """0: the job over several GPUs; else training with that many steps."""

    def body(self) -> Json:
        examples = ROOT / "examples"
        command = [sys.executable, str(examples / "multi_gpu.py")]
        if self.steps:
            words = ["--steps", str(self.steps), "--step-s", "0.25", "--save-every", "4"]
            command = [sys.executable, str(examples / "train.py"), *words]
        return {
            "job_id": self.job_id,
            "name": "training" if self.steps else "many GPUs",
            "command": command,
            "cluster": self.cluster,
            "gpu_count": self.gpus,
            "spot": self.cluster == SPOT_CLUSTER,
            "labels": {"demo": "yes"},
        }


TASKS = (
    DemoJob(VICTIM, SPOT_CLUSTER, 1, steps=48),
    DemoJob("spot-2", SPOT_CLUSTER, 1, steps=24),
    DemoJob("a100-1", SHORT_CLUSTER, 2, steps=24),
    DemoJob("a100-2", SHORT_CLUSTER, 2),
    DemoJob("t4-1", "1xt4", 1, steps=20),
    DemoJob("t4-2", "1xt4", 1, steps=12),
    DemoJob("l4-wide", "4xl4", 4),
    DemoJob("a100-80gb", "1xa100-80gb", 1, steps=16),
)


@dataclass(slots=True)
class DemoSummary:
    """How it ended, and what must have happened on the way."""

    jobs: list[Json]
    attempts: dict[str, list[Json]]
    stockout_region: str
    block: str
    preempted_vm: str
    resumed_at: int
    """The step at which the victim's last attempt began, by its own log."""
    seconds: float
    faults: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.faults

    def judge(self) -> None:
        """Collects everything that is not as it should be."""
        for job in self.jobs:
            if job["status"] != "SUCCEEDED":
                told = job.get("reason") or job.get("why") or "no reason"
                self.faults.append(f"{job['job_id']} is {job['status']}: {told}")
        if len(self.jobs) != len(TASKS):
            self.faults.append(f"{len(self.jobs)} jobs were found, expected {len(TASKS)}")
        if self.stockout_region in self.regions_of(SHORT_CLUSTER):
            self.faults.append(f"a {SHORT_CLUSTER} job ran in {self.stockout_region} all the same")
        if not self.preempted_vm:
            self.faults.append("no spot VM was reclaimed")
        elif self._victim().get("retries", {}).get("preemptions", 0) < 1:
            self.faults.append(f"{VICTIM} lost its VM but counts no preemption")
        elif self.resumed_at == 0:
            self.faults.append(f"{VICTIM} began anew instead of resuming from its checkpoint")

    def regions_of(self, cluster: str | None = None) -> list[str]:
        """Where attempts ran, of one cluster or of all."""
        chosen = [job for job in self.jobs if cluster in (None, job["cluster"])]
        found = {a["region"] for job in chosen for a in self.attempts.get(job["job_id"], [])}
        return sorted(found)

    def _victim(self) -> Json:
        return next((job for job in self.jobs if job["job_id"] == VICTIM), {})

    def cost_usd(self) -> float:
        return sum(float(job.get("cost_usd") or 0) for job in self.jobs)

    def lines(self) -> list[str]:
        """The summary for people."""
        done = sum(job["status"] == "SUCCEEDED" for job in self.jobs)
        victim = self._victim()
        moved = " → ".join(a["region"] for a in self.attempts.get(VICTIM, []))
        lines = [
            "",
            (
                f"{done} of {len(TASKS)} jobs succeeded in {self.seconds:.0f} s,"
                f" in {', '.join(self.regions_of()) or 'no region'}"
            ),
            (
                # Regions are asked side by side: one may deliver before the other refuses.
                f"stockout:   {SHORT_CLUSTER} in {self.stockout_region}"
                f" ({self.block or 'another region was faster than its refusal'});"
                f" its jobs ran in {', '.join(self.regions_of(SHORT_CLUSTER)) or 'no region'}"
            ),
            (
                f"reclaim: {VICTIM} lost {self.preempted_vm or 'nothing'}, was queued again,"
                f" resumed at step {self.resumed_at} and is {victim.get('status', 'missing')}"
                f" (attempt {victim.get('attempt', 0)}, {moved})"
            ),
            f"cost:       {money(self.cost_usd())} of GPU time, had it been real",
        ]
        return lines + [f"NOT AS EXPECTED: {fault}" for fault in self.faults]

    def as_json(self) -> Json:
        return {
            "ok": self.ok,
            "faults": self.faults,
            "seconds": round(self.seconds, 1),
            "jobs": self.jobs,
            "regions": self.regions_of(),
            "stockout": {
                "cluster": SHORT_CLUSTER,
                "region": self.stockout_region,
                "block": self.block,
                "ran_in": self.regions_of(SHORT_CLUSTER),
            },
            "preemption": {
                "job": VICTIM,
                "vm": self.preempted_vm,
                "resumed_at_step": self.resumed_at,
            },
            "cost_usd": self.cost_usd(),
        }


class Play:
    """Submits, disturbs, watches; step by step until all jobs are final."""

    def __init__(self, api: Client, sim: Client, *, live: bool, silent: bool) -> None:
        self._api, self._sim, self._live, self._silent = api, sim, live, silent
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._events: deque[tuple[object, ...]] = deque(maxlen=EVENTS_SHOWN)
        self._seen: dict[str, int] = {}
        self._jobs: list[Json] = []
        self._stockout_region = ""
        self._block = ""
        self._preempted_vm = ""

    def run(self) -> DemoSummary:
        self._set_stockout()
        for task in TASKS:
            self._api.post("/jobs", task.body())
        self._tell("demo", f"{len(TASKS)} jobs submitted")
        with self._screen() as live:
            while self._step(live):
                time.sleep(POLL_S)
        attempts = {
            job["job_id"]: self._api.get(path("jobs", job["job_id"], "attempts"))["attempts"]
            for job in self._jobs
        }
        summary = DemoSummary(
            jobs=self._jobs,
            attempts=attempts,
            stockout_region=self._stockout_region,
            block=self._block,
            preempted_vm=self._preempted_vm,
            resumed_at=self._resumed_at(),
            seconds=self._elapsed(),
        )
        summary.judge()
        return summary

    def _step(self, live: Live | None) -> bool:
        """Looks, disturbs if it is time, shows; False when it is over."""
        self._jobs = list(reversed(self._api.get("/jobs", {"page_size": 100})["jobs"]))
        self._hear_events()
        self._watch_block()
        self._maybe_preempt()
        if live is not None:
            live.update(self._drawn(live.console.size.height), refresh=True)
        over = all(job["status"] in FINAL for job in self._jobs)
        return not over and self._elapsed() < LIMIT_S

    def _resumed_at(self) -> int:
        """What the victim's newest attempt says in its first line."""
        pieces: list[bytes] = []
        Follower(self._api, VICTIM, None).dump(None, lambda chunk: pieces.append(chunk.data))
        found = re.search(rb"from step (\d+) of", b"".join(pieces))
        return int(found[1]) if found else 0

    # --- misfortunes --------------------------------------------------------------------

    def _set_stockout(self) -> None:
        """The region that would be asked first has nothing."""
        found = self._api.get("/clusters")["clusters"]
        cluster = next(c for c in found if c["name"] == SHORT_CLUSTER)
        first = min(cluster["regions"], key=lambda region: region["usd_per_hour"])
        self._stockout_region = first["region"]
        fault = {
            "kind": "stockout",
            "region": self._stockout_region,
            "machine_type": cluster["machine_type"],
            "for_s": 600,
        }
        self._sim.post("/faults", fault)
        self._tell("demo", f"no {cluster['machine_type']} left in {self._stockout_region}")

    def _watch_block(self) -> None:
        if self._block:
            return
        for cluster in self._api.get("/clusters")["clusters"]:
            if cluster["name"] != SHORT_CLUSTER:
                continue
            for region in cluster["regions"]:
                if region["region"] == self._stockout_region and region.get("blocked"):
                    self._block = str(region["blocked"]["kind"])
                    self._tell(SHORT_CLUSTER, f"{self._stockout_region} is blocked: {self._block}")

    def _maybe_preempt(self) -> None:
        if self._preempted_vm:
            return
        victim = next((job for job in self._jobs if job["job_id"] == VICTIM), None)
        if victim is None or victim["status"] != "RUNNING" or not victim.get("progress"):
            return
        told = victim["progress"]
        if told["step"] < PREEMPT_AT * (told.get("total") or 0):
            return
        name = victim["vm"]["name"]
        self._sim.post("/faults", {"kind": "preempt", "vm": name})
        self._preempted_vm = name
        self._tell("demo", f"the cloud takes {VICTIM}'s spot VM {short_vm(name)} back")

    # --- showing ------------------------------------------------------------------------

    def _hear_events(self) -> None:
        for job in self._jobs:
            job_id = job["job_id"]
            where = path("jobs", job_id, "events")
            after = self._seen.get(job_id)
            for event in self._api.get(where, {"after": after, "page_size": 100})["events"]:
                self._seen[job_id] = event["seq"]
                place = f" [{event['region']} {short_vm(event['vm_name'])}]"
                text = f"{event['event']}: {event['reason']}"
                self._tell(job_id, text + (place if event.get("vm_name") else ""), event["to"])

    def _tell(self, who: str, text: str, status: str = "") -> None:
        self._events.append((f"{self._elapsed():.1f} s", who, status, text))
        if not self._live and not self._silent:
            say(f"{self._elapsed():5.1f} s  {who:<10} {status:<12} {text}")

    def _drawn(self, height: int) -> Group:
        from rich.console import Group

        jobs = jobs_table(
            {"jobs": self._jobs}, self._clock.now(), max(4, height - EVENTS_SHOWN - 4)
        )
        newest = list(reversed(self._events))
        headings = ("AT", "WHO", "STATUS", "WHAT")
        return Group(jobs, "", fitted(headings, newest, below="WHAT", height=EVENTS_SHOWN + 1))

    @contextmanager
    def _screen(self) -> Iterator[Live | None]:
        if not self._live or self._silent:
            yield None
            return
        from rich.live import Live

        with Live(console=console(), auto_refresh=False, vertical_overflow="crop") as live:
            yield live

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._began
