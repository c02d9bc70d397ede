"""What chaos does: a stack of its own, jobs that flow, parts that are killed, frozen, restarted.

Everything is done from outside, with signals, to real processes. What came of it is judged
afterwards, from the database and from the lines that the jobs themselves have written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random  # noqa: TID251  # seeded: the same seed does the same things in the same order
import signal
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from cli.place import Home, Running, alive
from core.clock import SystemClock
from core.errors import StoreDown, ZenError
from db.audit import leading, watch
from db.store import PostgresStore
from sim.processes import marked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLUSTER = "1xl4"
PROJECT = "project"
ELECTED_S = 5.0
"""From an election to the leader's death."""
POLL_S = 0.02
RETRY_S = 0.2
TAKEOVER_WAIT_S = 60.0
HEAL_S = 300.0
# A line for each tenth of a second that the job really runs: two attempts that run at once, or
# one attempt that runs twice, are seen whatever the scheduler believes.
SCRIPT = """
import os, sys, time
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
me = f"{os.environ['ZEN_JOB_ID']} {os.environ['ZEN_ATTEMPT']} {os.getpid()}"
for _ in range(int(sys.argv[2])):
    os.write(out, f"{me} {time.time():.3f}\\n".encode())
    time.sleep(0.1)
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it."""

    seconds: float = 600.0
    replicas: int = 3
    jobs: int = 2000
    seed: int = 1
    vm_max: int = 6
    lease_s: float = 10.0
    """The leader's lease; renewed at a third of it."""
    frozen_s: float = 20.0
    """How long a leader stays frozen after its successor took over."""
    ticks_max: int = 500
    """Tenths of a second of the longest jobs."""
    acts: tuple[str, ...] = ()
    """In this order, once; empty: by dice until the time is over."""

    def changes(self) -> Mapping[str, Any]:
        """What the stack's configuration gets."""
        timers = {"leader_lease_s": self.lease_s, "leader_renew_s": round(self.lease_s * 0.3, 2)}
        return {"timers": timers, "clusters": {CLUSTER: {"vm_max": self.vm_max}}}


@dataclass(slots=True)
class Story:
    """What was done, and what callers met."""

    accepted: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    acts: Counter[str] = field(default_factory=Counter)
    submit_errors: Counter[str] = field(default_factory=Counter)
    fatal_errors: list[str] = field(default_factory=list)
    """Answers that a caller could not just have repeated."""
    handovers_s: list[float] = field(default_factory=list)
    outages: list[tuple[datetime, datetime]] = field(default_factory=list)
    """When the database was taken away: nobody can take over meanwhile."""
    healed_s: float = 0.0
    """From the last fault to the end of the last job."""


class Stuck(ZenError):
    """Something did not come back in time."""

    code = "stuck"


class Havoc:
    """One run on a stack that is up."""

    def __init__(self, home: Home, plan: Plan, ticks: Path, tell: Callable[[str], None]) -> None:
        self._home, self._plan, self._ticks, self._tell = home, plan, ticks, tell
        self._dice = random.Random(plan.seed)  # noqa: S311  # not a secret: a seed
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._url = ""
        self._open: PostgresStore | None = None
        self._store_of = ""
        self._submitting = True
        self.story = Story()
        self._doing: Mapping[str, Callable[[], Awaitable[None]]] = {
            "kill leader": self._kill_leader,
            "freeze leader": self._freeze_leader,
            "hand over": self._hand_over,
            "kill agent": self._kill_agent,
            "freeze VM": self._freeze_vm,
            "freeze agent": self._freeze_agent,
            "kill bus": self._kill_bus,
            "freeze bus": self._freeze_bus,
            "kill postgres": self._kill_postgres,
            "stop postgres": self._stop_postgres,
        }

    async def run(self) -> Story:
        """Faults while jobs flow; then nothing but waiting until all jobs have ended."""
        # A pool that looks for a database which we took away ourselves is no news.
        logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
        await watch(await self._store())
        async with httpx.AsyncClient(timeout=10, trust_env=False) as http:
            flow = asyncio.create_task(self._flow(http), name="jobs")
            try:
                async for act in self._acts():
                    self._tell(f"[{self._elapsed():5.0f} s] {act}")
                    await self._doing[act]()
                    self.story.acts[act] += 1
                self._submitting = False
                await flow
            finally:
                flow.cancel()
                await asyncio.gather(flow, return_exceptions=True)
            await self._heal(http)
        return self.story

    async def store(self) -> PostgresStore:
        """The database as it is now, for whoever judges."""
        return await self._store()

    async def close(self) -> None:
        if self._open is not None:
            await self._open.close()
            self._open = None

    async def _acts(self) -> AsyncIterator[str]:
        if self._plan.acts:
            for act in self._plan.acts:
                yield act
                await asyncio.sleep(0.5)
            return
        kinds = list(self._doing)
        self._dice.shuffle(kinds)
        # Each kind once, then by dice; the death of the leader is the drum beat.
        while self._elapsed() < self._plan.seconds:
            yield kinds.pop() if kinds else self._dice.choice([*self._doing, *["kill leader"] * 8])
            await asyncio.sleep(self._dice.uniform(0.5, 3.0))

    # --- jobs ---------------------------------------------------------------------------

    async def _flow(self, http: httpx.AsyncClient) -> None:
        """Submissions at an even pace, by REST or as messages; some are stopped later."""
        pace_s = self._plan.seconds / self._plan.jobs
        began = self._elapsed()
        background: set[asyncio.Task[None]] = set()
        for number in range(self._plan.jobs):
            wait_s = began + number * pace_s - self._elapsed()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if not self._submitting and wait_s > 0:
                break  # the acts are over: the rest would only prolong the end
            task = asyncio.create_task(self._one(http, number))
            background.add(task)
            task.add_done_callback(background.discard)
        await asyncio.gather(*background)

    async def _one(self, http: httpx.AsyncClient, number: int) -> None:
        job_id = f"chaos-{number}"
        ticks = self._ticks_of(number)
        body: dict[str, object] = {
            "job_id": job_id,
            "cluster": CLUSTER,
            "command": [sys.executable, "-I", "-S", "-c", SCRIPT, str(self._ticks), str(ticks)],
        }
        by_message, stop = number % 4 == 3, number % 25 == 7
        if await self._insist(http, body, by_message=by_message):
            self.story.accepted.add(job_id)
        if stop:
            await asyncio.sleep(self._dice.uniform(0, 3))
            await self._stop_job(http, job_id)

    def _ticks_of(self, number: int) -> int:
        """Most are short; some outlive a fault, or even the time that their VM may be silent."""
        if number % 40 == 0:
            return self._dice.randint(self._plan.ticks_max // 2, self._plan.ticks_max)
        return self._dice.randint(30, 80) if number % 10 == 0 else self._dice.randint(2, 12)

    async def _insist(
        self, http: httpx.AsyncClient, body: dict[str, object], *, by_message: bool
    ) -> bool:
        """As a caller should: again and again with the same id, until there is an answer."""
        while True:
            try:
                running = self._running()
                answer = await (self._message if by_message else self._rest)(http, running, body)
            except httpx.TransportError as error:
                self.story.submit_errors[type(error).__name__] += 1
            else:
                if answer.status_code in (200, 201):
                    return True
                if not self._note(answer):
                    return False
            await asyncio.sleep(RETRY_S)

    async def _rest(
        self, http: httpx.AsyncClient, running: Running, body: object
    ) -> httpx.Response:
        return await http.post(f"{running.api}/api/v1/jobs", json=body)

    async def _message(
        self, http: httpx.AsyncClient, running: Running, body: object
    ) -> httpx.Response:
        topic = f"{running.bus_rest}/v1/projects/{self._project()}/topics/pipeline-zen-jobs-submit"
        data = b64encode(json.dumps(body).encode()).decode()
        return await http.post(f"{topic}:publish", json={"messages": [{"data": data}]})

    async def _stop_job(self, http: httpx.AsyncClient, job_id: str) -> None:
        for _ in range(300):
            try:
                answer = await http.post(f"{self._running().api}/api/v1/jobs/{job_id}/stop")
            except httpx.TransportError:
                await asyncio.sleep(RETRY_S)
                continue
            if answer.status_code in (200, 202):
                self.story.stopped.add(job_id)
                return
            # 404: it came as a message that is not read yet.
            if answer.status_code != 404 and not self._note(answer):
                return
            await asyncio.sleep(RETRY_S)

    def _note(self, answer: httpx.Response) -> bool:
        """Whether the caller may try again."""
        if answer.status_code == 503:
            self.story.submit_errors["503"] += 1
            return True
        self.story.fatal_errors.append(f"{answer.status_code}: {answer.text[:200]}")
        return False

    async def _heal(self, http: httpx.AsyncClient) -> None:
        """All parts run: every accepted job must end by itself."""
        self._tell(f"[{self._elapsed():5.0f} s] no more faults; waiting for the jobs")
        began = self._clock.monotonic()
        while self._clock.monotonic() - began < HEAL_S:
            if await self._all_ended(http):
                self.story.healed_s = self._clock.monotonic() - began
                return
            await asyncio.sleep(0.5)

    async def _all_ended(self, http: httpx.AsyncClient) -> bool:
        try:
            answer = await http.get(f"{self._running().api}/api/v1/status")
        except httpx.TransportError:
            return False
        if answer.status_code != 200:
            return False
        jobs = answer.json()["jobs"]
        ended = sum(jobs[status] for status in ("SUCCEEDED", "FAILED", "CANCELLED"))
        return bool(ended == sum(jobs.values()) and ended >= len(self.story.accepted))

    # --- the leader ---------------------------------------------------------------------

    async def _kill_leader(self) -> None:
        term, pid = await self._leader()
        await asyncio.sleep(ELECTED_S)
        _signal(pid, signal.SIGKILL)
        await self._successor(term)

    async def _freeze_leader(self) -> None:
        """It thaws beside its successor and believes for a moment that it still leads."""
        term, pid = await self._leader()
        _signal(pid, signal.SIGSTOP)
        try:
            await self._successor(term)
            await asyncio.sleep(self._plan.frozen_s)
        finally:
            _signal(pid, signal.SIGCONT)

    async def _hand_over(self) -> None:
        term, pid = await self._leader()
        began = self._clock.monotonic()
        _signal(pid, signal.SIGTERM)
        await self._successor(term)
        self.story.handovers_s.append(self._clock.monotonic() - began)

    async def _leader(self) -> tuple[int, int]:
        """(term, process) of whoever leads now."""
        deadline = self._clock.monotonic() + TAKEOVER_WAIT_S
        while self._clock.monotonic() < deadline:
            term, holder = await self._asked()
            words = holder.rsplit("-", 2)
            if len(words) == 3 and alive(int(words[1])):
                return term, int(words[1])
            await asyncio.sleep(POLL_S)
        raise Stuck(f"nobody led within {TAKEOVER_WAIT_S:g} s")

    async def _successor(self, term: int) -> None:
        deadline = self._clock.monotonic() + TAKEOVER_WAIT_S
        while self._clock.monotonic() < deadline:
            now, holder = await self._asked()
            if now > term and holder:
                return
            await asyncio.sleep(POLL_S)
        raise Stuck(f"nobody took over from term {term} within {TAKEOVER_WAIT_S:g} s")

    async def _asked(self) -> tuple[int, str]:
        try:
            return await leading(await self._store())
        except StoreDown:
            return 0, ""

    # --- workers ------------------------------------------------------------------------

    async def _kill_agent(self) -> None:
        _signal(await self._busy_agent(), signal.SIGKILL)

    async def _freeze_vm(self) -> None:
        """The whole machine stands still, then goes on: shorter or longer than it may be silent."""
        agent = await self._busy_agent()
        await self._frozen([agent, *_below(agent)], self._dice.choice((5.0, 12.0, 26.0)))

    async def _freeze_agent(self) -> None:
        """The worker alone hangs, its job goes on computing."""
        await self._frozen([await self._busy_agent()], self._dice.choice((5.0, 26.0)))

    async def _frozen(self, pids: Sequence[int], seconds: float) -> None:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                _signal(pid, signal.SIGCONT)

    async def _busy_agent(self) -> int:
        """A worker that has a job at this moment."""
        prefix = f"ZEN_VM_DIR={self._home.path / 'cloud' / 'vms'}{os.sep}"
        deadline = self._clock.monotonic() + TAKEOVER_WAIT_S
        while self._clock.monotonic() < deadline:
            found = sorted(pid for pid in marked(prefix) if _is_agent(pid) and _below(pid))
            if found:
                return self._dice.choice(found)
            await asyncio.sleep(RETRY_S)
        raise Stuck(f"no worker had a job within {TAKEOVER_WAIT_S:g} s")

    # --- database and bus ---------------------------------------------------------------

    async def _kill_bus(self) -> None:
        _signal(self._running().processes["bus"], signal.SIGKILL)
        await asyncio.sleep(3)

    async def _freeze_bus(self) -> None:
        await self._frozen([self._running().processes["bus"]], self._dice.uniform(4, 10))

    async def _kill_postgres(self) -> None:
        await self._restart_postgres(signal.SIGKILL)

    async def _stop_postgres(self) -> None:
        await self._restart_postgres(signal.SIGTERM)

    async def _restart_postgres(self, number: signal.Signals) -> None:
        """Schedulers are told the new address by a restart: until then nobody leads."""
        began = self._clock.now()
        before = self._running().processes["postgres"]
        _signal(before, number)
        deadline = self._clock.monotonic() + TAKEOVER_WAIT_S
        while self._running().processes.get("postgres") == before:
            if self._clock.monotonic() > deadline:
                raise Stuck("the database did not come back")
            await asyncio.sleep(POLL_S)
        await self._leader()
        self.story.outages.append((began, self._clock.now()))

    # --- small parts --------------------------------------------------------------------

    def _running(self) -> Running:
        running = self._home.read()
        assert running is not None, "the stack wrote its run file before it said ready"
        return running

    def _project(self) -> str:
        import yaml

        said = yaml.safe_load((self._home.path / "zen.yaml").read_text(encoding="utf-8"))
        return str(said[PROJECT])

    async def _store(self) -> PostgresStore:
        """Its address changes when it is started again; its own note says where it is now."""
        if noted := _noted(self._home.path / "pg" / "lock").get("socket_dir"):
            self._url = f"postgresql://zen@/postgres?host={noted}"
        if self._store_of != self._url:
            await self.close()
            self._open = PostgresStore(self._url, name="chaos")
            self._store_of = self._url
            await self._open.open()
        assert self._open is not None
        return self._open

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._began


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself meanwhile


def _noted(path: Path) -> Mapping[str, object]:
    """Empty while it is being written."""
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return words if isinstance(words, dict) else {}


def _below(pid: int) -> list[int]:
    """All processes that it started, and theirs."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [found for child in words for found in (int(child), *_below(int(child)))]


def _is_agent(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[1:3] == [b"-m", b"agent"]
