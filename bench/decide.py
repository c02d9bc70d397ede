"""What one cycle of the leader costs beside queues of different lengths.

    python -m bench.decide [--queued 10000 100000 1000000] [--vms 10000] [--seconds 30]

A real replica leads over a real database with `tenants` tenants, `clusters` clusters, `vms` VMs
that each run a job, and a queue. Nothing of it is left out: its loop is woken by the mail and by
the database, its clusters are observed and planned, its outbox is relayed, its forecasts are made.
The fleet is pretended (bench/fleet.py): every worker reports every `heartbeat` seconds, jobs end at
the rate of a fleet whose jobs run two hours, others are submitted as fast, and what is placed
starts. Then the same in a rush, with `rush` ends a second. The database grows from the shortest
queue to the longest, so the rows of one table are comparable. `submits` more a second go through
the leader's own door, in its own process (bench/customers.py). The baseline is the same leader when
it keeps nothing from cycle to cycle: each snapshot is read as a whole.

A cycle's time is from the drained inbox to the acknowledged mail; whatever else the process does
meanwhile is in its wall time. Its CPU is that of the loop alone: on a machine with other work the
wall clock says little.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from bench.crowd import NAMES, CrowdSize, fill_queue, renew
from bench.customers import Customers, submit_for_ever
from bench.figures import tell
from bench.fleet import BenchFleet, FleetPace
from bench.house import fresh_database, on_uvloop
from bench.local import postgres_server
from bench.proven import SIGNER, MadeSubscriptions
from bench.report import figure, quantile, show, verdict
from config.settings import ApiSettings, Settings
from core.changes import AtomicBatch, Committed, Snapshot
from core.clock import SystemClock
from core.ids import RandomIds
from core.job import Budgets
from core.ports import Cloud
from core.queueing import Ask
from core.retention import RetentionRules
from core.timers import Timers
from db.notifications import Listener
from db.store import PostgresStore
from orchestrator.cluster_manager import ClusterManager
from scheduler.cycle.loop import SchedulerLoop
from scheduler.operations.logs import configure_logs
from scheduler.operations.metrics import Metrics
from scheduler.replica import Adapters, Replica
from scheduler.submission.group_commit import GroupCommit

# The lease outlasts a machine that gives us no time: who leads is not what is measured here.
TIMERS = Timers(leader_lease_s=600.0)
RUN_S = 7200.0
QUEUE_LIMIT = 1000
WARM_S = 6.0
TARGET_MS = 100.0
TARGET_MB = 1024.0
READY_S = 5.0
ALL = "reads all"
PHASES = ("steady", "rush")
QUEUES = (10_000, 100_000, 1_000_000)
SPANS = ("cpu_ms", "p99_ms", "cores", "server_cores")
TOLD = (
    *("ready_s", "rss_mb"),
    *(f"{phase}_{span}" for phase in PHASES for span in SPANS),
    *(f"{phase}_{span}_{queued}" for phase in PHASES for span in SPANS for queued in QUEUES),
)
"""Of the longest queue; with a length behind it, of that queue."""


# --- measuring --------------------------------------------------------------------------


@dataclass(slots=True)
class Spans:
    """Milliseconds of each cycle of one phase."""

    wall: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    """CPU of the loop itself."""
    all: list[float] = field(default_factory=list)
    """CPU of the whole process while the cycle lasted."""
    parts: dict[str, list[float]] = field(default_factory=dict)
    """Wall time by part."""
    seconds: float = 0.0
    process_s: float = 0.0
    server_s: float = 0.0
    """CPU of the database's sessions."""
    started: int = 0
    rounds: int = 0
    """Of clusters that were observed and planned."""
    submits: list[float] = field(default_factory=list)
    """Milliseconds from the moment a submission was to come to its answer."""


class Forgetful(PostgresStore):
    """The baseline: every snapshot is read as a whole."""

    async def snapshot(self, queue_limit: int, ask: Ask | None = None) -> Snapshot:
        self._viewer.forget()
        return await super().snapshot(queue_limit, ask)


class Stopwatch:
    """Around the cycles of every loop and their parts, while it is worn."""

    def __init__(self) -> None:
        self.spans = Spans()
        self.turned = asyncio.Event()
        self._own_ms = 0.0
        self._kept = (
            SchedulerLoop.cycle,
            PostgresStore.snapshot,
            PostgresStore.commit,
            ClusterManager.reconcile,
        )

    def __enter__(self) -> Stopwatch:
        cycle, snapshot, commit, reconcile = self._kept
        watch = self

        async def timed_cycle(loop: SchedulerLoop) -> None:
            began, used, own = time.perf_counter(), time.process_time(), watch._own_ms
            await _Metered(cycle(loop), watch._work)
            watch.spans.wall.append((time.perf_counter() - began) * 1e3)
            watch.spans.all.append((time.process_time() - used) * 1e3)
            watch.spans.own.append(watch._own_ms - own)
            watch.turned.set()

        async def timed_snapshot(
            store: PostgresStore, queue_limit: int, ask: Ask | None = None
        ) -> Snapshot:
            with watch._part("snapshot"):
                return await snapshot(store, queue_limit, ask)

        async def timed_commit(
            store: PostgresStore, batches: Sequence[AtomicBatch], term: int | None
        ) -> Committed:
            with watch._part("commit"):
                return await commit(store, batches, term)

        async def counted_reconcile(manager: ClusterManager) -> None:
            await reconcile(manager)
            watch.spans.rounds += 1  # only cycles that came to their end

        _wear(timed_cycle, timed_snapshot, timed_commit, counted_reconcile)
        return self

    def _work(self, seconds: float) -> None:
        self._own_ms += seconds * 1e3

    def __exit__(self, *_: object) -> None:
        _wear(*self._kept)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        task = asyncio.current_task()
        if task is not None and task.get_name() == "loop":
            self.spans.parts.setdefault(name, []).append((time.perf_counter() - began) * 1e3)


class _Metered:
    """A coroutine whose steps tell how much CPU each has taken."""

    def __init__(self, work: Coroutine[object, None, None], told: Callable[[float], None]) -> None:
        self._work, self._told = work, told

    def __await__(self) -> Generator[object, None, None]:
        fault: BaseException | None = None
        while True:
            used = time.process_time()
            try:
                waits_for = self._work.send(None) if fault is None else self._work.throw(fault)
            except StopIteration:
                return
            finally:
                self._told(time.process_time() - used)
            fault = None
            try:
                yield waits_for
            except BaseException as error:  # cancelled: the coroutine must hear of it
                fault = error


def _wear(*methods: object) -> None:
    places = (
        *((SchedulerLoop, "cycle"), (PostgresStore, "snapshot"), (PostgresStore, "commit")),
        (ClusterManager, "reconcile"),
    )
    for (owner, name), method in zip(places, methods, strict=True):
        setattr(owner, name, method)


def settings_for(size: CrowdSize) -> Settings:
    return Settings(
        project="bench",
        names=NAMES,
        clusters=size.specs(),
        timers=TIMERS,
        budgets=Budgets(),
        retention=RetentionRules(),
        database_url="",
        pubsub_host=None,
        cloud={"compute_url": None, "identity_certs_url": None, "calls_per_minute": 600},
        store_url="file:///nowhere",
        v1_results_url=None,
        api=ApiSettings(),
        queue_limit=QUEUE_LIMIT,
        log_level="critical",
        prices_as_of="2026-01-01",
    )


@dataclass(frozen=True, slots=True)
class _DecideRow:
    """One length of queue."""

    words: str
    queued: int
    ready_s: float
    spans: Spans
    rss_mb: float


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """How long what is measured, and how fast the fleet lives."""

    seconds: float
    heartbeat_s: float
    rush_per_s: float
    submits_per_s: float


async def measure(
    url: str, size: CrowdSize, queued: int, plan: MeasurePlan, *, keeps: bool
) -> list[_DecideRow]:
    """From a leader that knows nothing."""
    pace = FleetPace(plan.heartbeat_s, size.vms / RUN_S)
    empty_mb = _rss_mb()
    fleet = BenchFleet(NAMES, size.workers(), pace)
    fleet_mb = _rss_mb() - empty_mb
    store = (PostgresStore if keeps else Forgetful)(url, name="bench-leader", operation_s=120.0)
    await store.open()
    writer = GroupCommit(store)
    clock = SystemClock()
    listener = Listener(url)
    clouds = {"mig": Cloud(lambda _: fleet)}
    adapters = Adapters(
        store,
        fleet,
        clouds,
        writer.submit,
        listener.wakeups,
        clock,
        RandomIds(),
        SIGNER,
        MadeSubscriptions(),
    )
    replica = Replica(settings_for(size), adapters, Metrics(), "bench-leader")
    rows: list[_DecideRow] = []
    others: list[asyncio.Task[None]] = []
    customers = Customers(replica.submissions, size, plan.submits_per_s)
    began = time.perf_counter()
    try:
        with Stopwatch() as first:
            replica.start()
            async with asyncio.timeout(120):
                await first.turned.wait()
            ready_s = time.perf_counter() - began
            others = [
                asyncio.create_task(fleet.live(), name="fleet"),
                asyncio.create_task(submit_for_ever(url, size, pace), name="submitter"),
            ]
            if plan.submits_per_s:
                others.append(asyncio.create_task(customers.come(), name="customers"))
            await asyncio.sleep(WARM_S)  # statements are prepared, caches are warm
        for words, ends in ((PHASES[0], pace.ends_per_s), (PHASES[1], plan.rush_per_s)):
            if words == PHASES[1] and not keeps:
                continue
            pace.ends_per_s = ends
            customers.took.clear()
            spans = await watch(fleet, plan.seconds)
            spans.submits = list(customers.took)
            rss_mb = _rss_mb() - fleet_mb
            rows.append(_DecideRow(words if keeps else ALL, queued, ready_s, spans, rss_mb))
    finally:
        for task in others:
            task.cancel()
        ended = await asyncio.gather(*others, return_exceptions=True)
        await replica.stop()
        await writer.close()
        await store.close()
    for end in ended:
        if isinstance(end, Exception):
            raise end  # submissions that failed would look quick
    return rows


async def watch(fleet: BenchFleet, seconds: float) -> Spans:
    """A while of it."""
    began, used = time.perf_counter(), time.process_time()
    server, started = _server_s(), fleet.started
    with Stopwatch() as worn:
        await asyncio.sleep(seconds)
    spans = worn.spans
    spans.seconds = time.perf_counter() - began
    spans.process_s = time.process_time() - used
    spans.server_s = _server_s() - server
    spans.started = fleet.started - started
    return spans


def _server_s() -> float:
    """CPU of the database's sessions that serve the leader."""
    total = 0.0
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # A session's title says whose it is, in which database.
            if b" decide " in (directory / "cmdline").read_bytes():
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _cost(spans: Spans) -> float:
    """CPU per cycle, here and in the database."""
    return quantile(spans.own, 0.5) + spans.server_s * 1e3 / len(spans.wall)


def report(rows: Sequence[_DecideRow], size: CrowdSize, plan: MeasurePlan) -> None:
    table = Table(
        *("queued", "", "cycle", "CPU", "p99", "wall", "p99", "snapshot", "commit", "server"),
        *("CPU/s", "÷ all", "starts"),
    )
    whole = next((_cost(row.spans) for row in rows if row.words == ALL), None)
    for row in rows:
        spans = row.spans
        worst = quantile(spans.wall, 0.99)
        table.add_row(
            f"{row.queued:,}",
            row.words,
            str(len(spans.wall)),
            figure(quantile(spans.own, 0.5)),
            figure(quantile(spans.own, 0.99)),
            figure(quantile(spans.wall, 0.5)),
            figure(worst),
            *(figure(quantile(spans.parts[part], 0.5)) for part in ("snapshot", "commit")),
            figure(spans.server_s * 1e3 / len(spans.wall)),
            figure(sum(spans.own) / spans.seconds),
            f"{_cost(spans) / whole:.2f}" if whole else "–",
            figure(spans.started / spans.seconds),
        )
        assert spans.rounds, "no cluster was looked at: this is not what a leader does"
    busiest = max(row.rss_mb for row in rows if row.words != ALL)
    slowest = max(row.ready_s for row in rows)
    rounds = ", ".join(figure(row.spans.rounds / row.spans.seconds) for row in rows)
    shares = ", ".join(f"{row.spans.process_s / row.spans.seconds:.2f}" for row in rows)
    show(
        table,
        f"{size.tenants:,} tenants, {size.clusters} clusters, {size.vms:,} VMs, each reporting "
        f"every {plan.heartbeat_s:g} s. Milliseconds per cycle, medians unless said. CPU: of the "
        "loop itself; server: of the database's sessions, all they did meanwhile. CPU/s: of the "
        "loop per second (on a busy machine cycles are fewer, and each has more to do). ÷ all: CPU "
        "and server beside the leader that reads all each time. Starts of jobs per second.",
        f"Target: wall p99 {TARGET_MS:g} ms, submit p99 {TARGET_MS:g} ms, on a machine without "
        "other work. "
        f"RSS {figure(busiest)} MB ({verdict(busiest, TARGET_MB)}); ready in {figure(slowest)} s "
        f"({verdict(slowest, READY_S)}); cores used by the whole process, by row: {shares}; "
        f"rounds of clusters per second: {rounds}.",
        *_door_words(rows, plan),
    )


def _tell(rows: Sequence[_DecideRow]) -> None:
    """The longest queue comes last."""
    for row in rows:
        name, spans = row.words, row.spans
        figures = {
            f"{name}_cpu_ms": quantile(spans.own, 0.5),
            f"{name}_p99_ms": quantile(spans.wall, 0.99),
            f"{name}_cores": spans.process_s / spans.seconds,
            f"{name}_server_cores": spans.server_s / spans.seconds,
        }
        tell(**figures, ready_s=row.ready_s, rss_mb=row.rss_mb)
        tell(**{f"{key}_{row.queued}": value for key, value in figures.items()})


def _door_words(rows: Sequence[_DecideRow], plan: MeasurePlan) -> list[str]:
    """How long the leader's own door took to answer."""
    told = [
        f"{row.queued:,} {row.words}: {len(row.spans.submits)}, p50 "
        f"{figure(quantile(row.spans.submits, 0.5))}, p99 {figure(worst)} "
        f"({verdict(worst, TARGET_MS)})"
        for row in rows
        if row.spans.submits and (worst := quantile(row.spans.submits, 0.99))
    ]
    return [f"Submissions, {plan.submits_per_s:g} a second, ms: {'; '.join(told)}."] if told else []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queued", type=int, nargs="+", default=QUEUES)
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--vms", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each phase")
    parser.add_argument(
        "--heartbeat", type=float, default=10.0, help="seconds between two heartbeats"
    )
    parser.add_argument("--rush", type=float, default=50.0, help="ends per second in the rush")
    parser.add_argument("--submits", type=float, default=10.0, help="a second, through the door")
    parser.add_argument("--no-baseline", action="store_true", help="not the leader that forgets")
    args = parser.parse_args()
    configure_logs("error")  # a part that crashes would make the others look quick
    size, plan = (
        CrowdSize(args.tenants, args.clusters, args.vms),
        MeasurePlan(args.seconds, args.heartbeat, args.rush, args.submits),
    )
    rows, filled = [], 0
    with postgres_server("zen-decide-", fsync=False) as (_, server):
        url = fresh_database(server, "decide")
        for queued in sorted(args.queued):
            fill_queue(url, size, filled + 1, queued)
            filled = queued
            renew(url, size)
            found = on_uvloop(measure(url, size, queued, plan, keeps=True))
            _tell(found)  # the next length may take too long
            rows += found
        if not args.no_baseline:
            renew(url, size)
            rows += on_uvloop(measure(url, size, filled, plan, keeps=False))
    report(rows, size, plan)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
