"""The jobs of a chaos run: submitted at an even pace by callers who insist, some stopped later."""

from __future__ import annotations

import asyncio
import json
import random  # noqa: TID251  # seeded: the same seed does the same things in the same order
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import httpx

from cli.chaos.scenarios import (
    CLUSTER,
    STUCK_S,
    ChaosLog,
    ChaosPlan,
    NotRecovered,
    tick_lines,
)
from cli.paths import Running
from core.clock import SystemClock

RETRY_S = 0.2
RETRY_MAX_S = 2.0
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
# A line for each tenth of a second that the job really runs: two attempts that run at once, or
# one attempt that runs twice, are seen whatever the scheduler believes.
SCRIPT = """
import os, sys, time
path = os.environ["ZEN_CHECKPOINT_DIR"] + "/ticks"
out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
me = f"{os.environ['ZEN_JOB_ID']} {os.environ['ZEN_ATTEMPT']} {os.getpid()}"
for _ in range(int(sys.argv[1])):
    os.write(out, f"{me} {time.time():.3f}\\n".encode())
    time.sleep(0.1)
"""


class Flow:
    """Callers of one stack. `running` tells where it is now."""

    def __init__(
        self,
        plan: ChaosPlan,
        story: ChaosLog,
        ticks: Path,
        http: httpx.AsyncClient,
        running: Callable[[], Running],
        project: str,
    ) -> None:
        self._plan, self._story, self._ticks = plan, story, ticks
        self._http, self._running, self._project = http, running, project
        self._dice = random.Random(f"{plan.seed}/flow")  # noqa: S311  # not a secret: a seed
        self._clock = SystemClock()
        self.open = True
        """False: the faults are over, what is not submitted yet would only prolong the end."""

    async def run(self) -> None:
        """By REST or as messages, over the plan's span."""
        pace_s = self._plan.seconds / self._plan.jobs
        began = self._clock.monotonic()
        background: set[asyncio.Task[None]] = set()
        for number in range(self._plan.jobs):
            wait_s = began + number * pace_s - self._clock.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if not self.open and wait_s > 0:
                break
            task = asyncio.create_task(self._one(number))
            background.add(task)
            task.add_done_callback(background.discard)
        await asyncio.gather(*background)

    async def steady(self) -> dict[str, int]:
        """The jobs that an outage will meet: submitted, and seen running."""
        ticks = self._plan.steady_ticks
        wanted = {f"steady-{number}": ticks for number in range(self._plan.steady)}
        for job_id in wanted:
            if await self._insist(self._body(job_id, ticks), by_message=False):
                self._story.accepted.add(job_id)
        deadline = self._clock.monotonic() + STUCK_S
        while missing := set(wanted) - self._seen():
            if self._clock.monotonic() > deadline:
                raise NotRecovered(
                    f"did not run within {STUCK_S:g} s: {', '.join(sorted(missing))}"
                )
            await asyncio.sleep(RETRY_S)
        return wanted

    async def all_ended(self) -> bool:
        try:
            answer = await self._http.get(f"{self._running().api}/api/v1/status")
        except httpx.TransportError:
            return False
        if answer.status_code != 200:
            return False
        jobs = answer.json()["jobs"]
        ended = sum(jobs[status] for status in ENDED)
        return bool(ended == sum(jobs.values()) and ended >= len(self._story.accepted))

    async def probe(self, seconds: float) -> None:
        """While the database is away: what callers hear, and after how long."""
        ends_at = self._clock.monotonic() + seconds
        submission = {"job_id": "probe", "command": ["true"], "cluster": CLUSTER}
        while self._clock.monotonic() < ends_at:
            for call, body in (("GET", None), ("POST", submission)):
                began = self._clock.monotonic()
                try:
                    url = f"{self._running().api}/api/v1/jobs"
                    answer = await self._http.request(call, url, json=body)
                except httpx.TransportError as error:
                    self._story.fatal_errors.append(f"{call} jobs: {error!r}")
                    continue
                # Its children outlive a killed server for a moment, and may answer until then.
                last_word = call == "GET" and answer.is_success and not self._story.refusals_s
                if answer.status_code == 503:
                    self._story.refusals_s.append(self._clock.monotonic() - began)
                elif not last_word:
                    self._story.fatal_errors.append(f"{call} jobs: {answer.status_code}")
            await asyncio.sleep(1.0)

    def _seen(self) -> set[str]:
        return {line.split()[0] for line in tick_lines(self._ticks)}

    async def _one(self, number: int) -> None:
        job_id = f"chaos-{number}"
        body = self._body(job_id, self._ticks_of(number))
        if await self._insist(body, by_message=number % 4 == 3):
            self._story.accepted.add(job_id)
        if number % 25 == 7:
            await asyncio.sleep(self._dice.uniform(0, 3))
            await self._stop_job(job_id)

    def _body(self, job_id: str, ticks: int) -> dict[str, object]:
        return {
            "job_id": job_id,
            "cluster": CLUSTER,
            "command": [sys.executable, "-I", "-S", "-c", SCRIPT, str(ticks)],
        }

    def _ticks_of(self, number: int) -> int:
        """Most are short; some outlive a fault, or even the time that their VM may be silent."""
        if number % 40 == 0:
            return self._dice.randint(self._plan.ticks_max // 2, self._plan.ticks_max)
        return self._dice.randint(30, 80) if number % 10 == 0 else self._dice.randint(2, 12)

    async def _insist(self, body: dict[str, object], *, by_message: bool) -> bool:
        """As a caller should: again and again with the same id, until there is an answer."""
        pause_s = RETRY_S
        while True:
            try:
                answer = await (self._message if by_message else self._rest)(body)
            except httpx.TransportError as error:
                self._story.submit_errors[type(error).__name__] += 1
            else:
                if answer.status_code in (200, 201):
                    return True
                if not self._note(answer):
                    return False
            await asyncio.sleep(pause_s)
            pause_s = min(1.5 * pause_s, RETRY_MAX_S)

    async def _rest(self, body: object) -> httpx.Response:
        return await self._http.post(f"{self._running().api}/api/v1/jobs", json=body)

    async def _message(self, body: object) -> httpx.Response:
        where = f"{self._running().bus_rest}/v1/projects/{self._project}"
        data = b64encode(json.dumps(body).encode()).decode()
        return await self._http.post(
            f"{where}/topics/pipeline-zen-jobs-submit:publish", json={"messages": [{"data": data}]}
        )

    async def _stop_job(self, job_id: str) -> None:
        for _ in range(300):
            try:
                answer = await self._http.post(f"{self._running().api}/api/v1/jobs/{job_id}/stop")
            except httpx.TransportError:
                await asyncio.sleep(RETRY_S)
                continue
            if answer.status_code in (200, 202):
                self._story.stopped.add(job_id)
                return
            # 404: it came as a message that is not read yet.
            if answer.status_code != 404 and not self._note(answer):
                return
            await asyncio.sleep(RETRY_S)

    def _note(self, answer: httpx.Response) -> bool:
        """Whether the caller may try again."""
        if answer.status_code == 503:
            self._story.submit_errors["503"] += 1
            return True
        self._story.fatal_errors.append(f"{answer.status_code}: {answer.text[:200]}")
        return False
