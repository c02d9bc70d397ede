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
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from cli.chaos.job_flow import Flow
from cli.chaos.scenarios import STUCK_S, ChaosLog, ChaosPlan, NotRecovered, Outage
from cli.credentials import read_key
from cli.paths import Home, Running, alive, send_signal
from core.clock import SystemClock
from core.errors import StoreDown
from db.history_check import leading, watch
from db.roles import OWN_LOGIN
from db.store import PostgresStore
from sim.cloud.processes import marked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROJECT = "project"
ELECTED_S = 5.0
"""From an election to the leader's death."""
POLL_S = 0.02
HEAL_S = 300.0
UNTIL_ENDED_MAX = 4
"""Times the plan's span: if the jobs have not ended by then, more faults prove nothing."""


class ChaosRun:
    """One run on a stack that is up."""

    def __init__(
        self, home: Home, plan: ChaosPlan, ticks: Path, tell: Callable[[str], None]
    ) -> None:
        self._home, self._plan, self._ticks, self._tell = home, plan, ticks, tell
        self._dice = random.Random(plan.seed)  # noqa: S311  # not a secret: a seed
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._url = ""
        self._open: PostgresStore | None = None
        self._store_of = ""
        self._flow: Flow | None = None
        self._before = 0
        self.story = ChaosLog()
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
        self._long: Mapping[str, Callable[[], Awaitable[None]]] = {
            "database away": self._database_away,
            "bus away": self._bus_away,
        }

    async def run(self) -> ChaosLog:
        """Faults while jobs flow; then nothing but waiting until all jobs have ended."""
        # A pool that looks for a database which we took away ourselves is no news.
        logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
        await watch(await self._store())
        async with httpx.AsyncClient(timeout=10, trust_env=False, headers=self._key()) as http:
            self._flow = flow = Flow(
                self._plan, self.story, self._ticks, http, self._running, self._project()
            )
            flowing = asyncio.create_task(flow.run(), name="jobs")
            try:
                async for act in self._acts(flowing):
                    self._tell(f"[{self._elapsed():5.0f} s] {act}")
                    await {**self._doing, **self._long}[act]()
                    self.story.acts[act] += 1
                flow.open = False
                await flowing
            finally:
                flowing.cancel()
                await asyncio.gather(flowing, return_exceptions=True)
            await self._heal(flow)
        return self.story

    def _key(self) -> dict[str, str]:
        return {"authorization": f"Bearer {read_key(Path(self._running().key_file))}"}

    async def store(self) -> PostgresStore:
        """The database as it is now, for the verdict."""
        return await self._store()

    async def close(self) -> None:
        if self._open is not None:
            await self._open.close()
            self._open = None

    async def _acts(self, flowing: asyncio.Task[None]) -> AsyncIterator[str]:
        if self._plan.acts:
            for act in self._plan.acts:
                yield act
                await asyncio.sleep(0.5)
            return
        if self._plan.until_ended:
            while not await self._over(flowing):
                yield self._plan.until_ended
            return
        kinds = list(self._doing)
        self._dice.shuffle(kinds)
        # Each kind once, then by dice; the death of the leader sets the pace.
        while self._elapsed() < self._plan.seconds:
            yield kinds.pop() if kinds else self._dice.choice([*self._doing, *["kill leader"] * 8])
            await asyncio.sleep(self._dice.uniform(0.5, 3.0))

    async def _over(self, flowing: asyncio.Task[None]) -> bool:
        assert self._flow is not None
        late = self._elapsed() > UNTIL_ENDED_MAX * self._plan.seconds
        return late or (flowing.done() and await self._flow.all_ended())

    async def _heal(self, flow: Flow) -> None:
        """All parts run: every accepted job must end by itself."""
        self._tell(f"[{self._elapsed():5.0f} s] no more faults; waiting for the jobs")
        began = self._clock.monotonic()
        while self._clock.monotonic() - began < HEAL_S:
            if await flow.all_ended():
                self.story.healed_s = self._clock.monotonic() - began
                return
            await asyncio.sleep(0.5)

    # --- the leader ---------------------------------------------------------------------

    async def _kill_leader(self) -> None:
        term, pid = await self._leader()
        await asyncio.sleep(ELECTED_S)
        send_signal(pid, signal.SIGKILL)
        await self._successor(term)

    async def _freeze_leader(self) -> None:
        """It thaws beside its successor and believes for a moment that it still leads."""
        term, pid = await self._leader()
        await asyncio.sleep(min(ELECTED_S, self._plan.frozen_s / 4))
        send_signal(pid, signal.SIGSTOP)
        try:
            await self._successor(term)
            await asyncio.sleep(self._plan.frozen_s)
        finally:
            send_signal(pid, signal.SIGCONT)

    async def _hand_over(self) -> None:
        term, pid = await self._leader()
        began = self._clock.monotonic()
        send_signal(pid, signal.SIGTERM)
        await self._successor(term)
        self.story.handovers_s.append(self._clock.monotonic() - began)

    async def _leader(self) -> tuple[int, int]:
        """(term, process) of the leader now."""
        term, words = 0, [""]
        async for _ in self._until_stuck("nobody led"):
            term, holder = await self._asked()
            words = holder.rsplit("-", 2)
            if len(words) == 3 and alive(int(words[1])):
                break
        return term, int(words[1])

    async def _successor(self, term: int) -> None:
        async for _ in self._until_stuck(f"nobody took over from term {term}"):
            now, holder = await self._asked()
            if now > term and holder:
                return

    async def _until_stuck(self, what: str) -> AsyncIterator[None]:
        """Look again and again; NotRecovered if that takes too long."""
        deadline = self._clock.monotonic() + STUCK_S
        while self._clock.monotonic() < deadline:
            yield
            await asyncio.sleep(POLL_S)
        raise NotRecovered(f"{what} within {STUCK_S:g} s")

    async def _asked(self) -> tuple[int, str]:
        try:
            return await leading(await self._store())
        except StoreDown:
            return 0, ""

    # --- workers ------------------------------------------------------------------------

    async def _kill_agent(self) -> None:
        send_signal(await self._busy_agent(), signal.SIGKILL)

    async def _freeze_vm(self) -> None:
        """The whole machine stands still, then goes on: shorter or longer than it may be silent."""
        agent = await self._busy_agent()
        await self._frozen([agent, *_below(agent)], self._dice.choice((5.0, 12.0, 26.0)))

    async def _freeze_agent(self) -> None:
        """The worker alone hangs, its job goes on computing."""
        await self._frozen([await self._busy_agent()], self._dice.choice((5.0, 26.0)))

    async def _frozen(self, pids: Sequence[int], seconds: float) -> None:
        for pid in pids:
            send_signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                send_signal(pid, signal.SIGCONT)

    async def _busy_agent(self) -> int:
        """A worker that has a job at this moment."""
        prefix = f"ZEN_VM_DIR={self._home.path / 'cloud' / 'vms'}{os.sep}"
        found: list[int] = []
        async for _ in self._until_stuck("no worker had a job"):
            found = sorted(pid for pid in marked(prefix) if _is_agent(pid) and _below(pid))
            if found:
                break
        return self._dice.choice(found)

    # --- database and bus ---------------------------------------------------------------

    async def _kill_bus(self) -> None:
        send_signal(self._running().processes["bus"], signal.SIGKILL)
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
        send_signal(before, number)
        await self._started_again("postgres", before)
        await self._leader()
        self.story.outages.append((began, self._clock.now()))

    async def _database_away(self) -> None:
        """Killed and held down: a caller must hear so soon, a running job must not notice."""
        assert self._flow is not None
        steady = await self._flow.steady()
        began = self._clock.now()
        with self._held_down("postgres"):
            await self._flow.probe(self._plan.away_s)
        await self._returned("postgres", began.timestamp(), steady)
        await self._leader()
        self.story.outages.append((began, self._clock.now()))

    async def _bus_away(self) -> None:
        """Killed and held down: workers freeze their jobs, and nobody is declared lost."""
        assert self._flow is not None
        steady = await self._flow.steady()
        began = self._clock.now().timestamp()
        with self._held_down("bus"):
            await asyncio.sleep(self._plan.away_s)
        await self._returned("bus", began, steady)

    async def _started_again(self, part: str, before: int) -> None:
        async for _ in self._until_stuck(f"{part} did not come back"):
            if self._running().processes.get(part) != before:
                return

    @contextmanager
    def _held_down(self, part: str) -> Iterator[None]:
        """The supervisor stands still meanwhile, or it would start the part again at once."""
        supervisor = self._running().pid
        self._before = self._running().processes[part]
        send_signal(supervisor, signal.SIGSTOP)
        try:
            send_signal(self._before, signal.SIGKILL)
            yield
        finally:
            send_signal(supervisor, signal.SIGCONT)

    async def _returned(self, part: str, began: float, steady: Mapping[str, int]) -> None:
        await self._started_again(part, self._before)
        back = self._clock.now().timestamp()
        self.story.away.append(Outage(part, began, back, steady))
        self._tell(f"[{self._elapsed():5.0f} s] {part} is back")

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
            self._open = PostgresStore(self._url, name="chaos", role=OWN_LOGIN)
            self._store_of = self._url
            await self._open.open()
        assert self._open is not None
        return self._open

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._began


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
