"""The rows of `python -m bench.all`: what is measured, by which command, and what it must reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One command; several rows may read what it tells."""

    module: str
    words: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = None
    """Instead of `words`, on smaller sizes."""
    quick_s: float = 40.0
    """It is ended after so many seconds of --quick."""

    def command(self, quick: bool) -> tuple[str, ...]:
        words = self.words if not quick or self.quick is None else self.quick
        return ("-m", self.module, *words)

    def title(self, quick: bool) -> str:
        return " ".join(self.command(quick)[1:])


@dataclass(frozen=True, slots=True)
class BenchPeer:
    """A figure that stands beside that of a row: of another system, or of a lower bound."""

    name: str
    run: BenchRun
    told: str
    unit: str


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One figure."""

    id: str
    what: str
    unit: str
    must: float | None
    """None: it is shown alone."""
    stretch: float | None = None
    at_least: bool = False
    """The figure must not be smaller; else it must not be greater."""
    run: BenchRun | None = None
    """None: there is no bench for it."""
    told: str = ""
    """The name under which the bench tells it."""
    over: BenchPeer | None = None
    """The figure is divided by this one."""
    beside: tuple[BenchPeer, ...] = ()

    @property
    def peers(self) -> tuple[BenchPeer, ...]:
        """All that is shown beside the figure."""
        return (*(() if self.over is None else (self.over,)), *self.beside)

    @property
    def divided(self) -> tuple[BenchRun, ...]:
        """The runs that make the figure."""
        runs = (self.run, None if self.over is None else self.over.run)
        return tuple(run for run in runs if run is not None)

    @property
    def runs(self) -> tuple[BenchRun, ...]:
        """All that are read."""
        return tuple(dict.fromkeys((*self.divided, *(peer.run for peer in self.peers))))

    def verdict(self, value: float) -> str:
        if self.must is None:
            return "shown"
        if self.stretch is not None and self._holds(value, self.stretch):
            return "stretch"
        return "must" if self._holds(value, self.must) else "MISSED"

    def _holds(self, value: float, bound: float) -> bool:
        return value >= bound if self.at_least else value <= bound

    def bounds(self) -> str:
        sign = "≥" if self.at_least else "≤"
        named = [f"{bound:g}" for bound in (self.must, self.stretch) if bound is not None]
        return f"{sign} {' / '.join(named)}" if named else ""


DRAINED = 200
"""Jobs of the drain, of ours and of Slurm, with as many at once."""

SUBMIT_16 = BenchRun("bench.submit_rate", ("--connections", "16"), ("--seconds", "3"))
SUBMIT_64 = BenchRun(
    "bench.submit_rate", ("--connections", "64"), ("--connections", "64", "--seconds", "3")
)
PGQUEUER = BenchRun("bench.pgqueuer", (), ("--seconds", "3"))
REPLICAS = BenchRun("bench.submit_replicas", (), ("--seconds", "3"), 60)
BATCHES = BenchRun("bench.submit_batches", (), ("--rounds", "3"), 60)
MESSAGES = BenchRun("bench.submit_messages", (), ("--messages", "2000"))
START = BenchRun("bench.start_latency", (), ("--jobs", "15"))
_DRAIN = ("--slots", "64")
SLURM = BenchRun(
    "bench.slurm",
    (*_DRAIN, "--drained", str(DRAINED)),
    (*_DRAIN, "--drained", str(DRAINED), "--jobs", "10"),
    60,
)
DRAIN = BenchRun("bench.loop", (*_DRAIN, "--jobs", str(DRAINED)))
DECIDE = BenchRun(
    "bench.decide",
    ("--no-baseline",),
    ("--no-baseline", "--queued", "10000", "1000000", "--seconds", "8"),
    150,
)
GROWTH = BenchRun("bench.growth", (), ("--quick",), 120)
CATCH_UP = BenchRun(
    "bench.catch_up",
    ("--vms", "10000", "--heartbeats", "10"),
    ("--vms", "10000", "--heartbeats", "5"),
    90,
)
READS = BenchRun("bench.reads", (), ("--jobs", "100000", "--rounds", "15"), 60)
TAKEOVER = BenchRun("bench.takeover", (), ("--queued", "10000", "--vms", "2000"), 60)
COMMANDS = BenchRun("bench.command_line", (), ("--rounds", "10"))
STORED = BenchRun("bench.stored_bytes", ("--minutes", "60"), ("--jobs", "1500"), 90)

RUNS = (
    *(SUBMIT_16, SUBMIT_64, PGQUEUER, REPLICAS, BATCHES, MESSAGES),
    *(START, SLURM, DRAIN),
    *(DECIDE, CATCH_UP, READS, TAKEOVER, COMMANDS, STORED, GROWTH),
)
"""In the order in which they are measured: what is divided by each other, one after the other."""


def _submissions(run: BenchRun, connections: int) -> tuple[BenchRow, ...]:
    """One by one, beside a server that checks nothing and a queue that is a table."""
    beside = (
        BenchPeer("ours", run, "per_s", "/s"),
        BenchPeer("ceiling", run, "bare_per_s", "/s"),
        BenchPeer("pgqueuer", PGQUEUER, f"single_{connections}_per_s", "/s"),
    )
    rate, cost = f"single POST ÷ ceiling, {connections} connections", "CPU of the server ÷ ceiling"
    return (
        BenchRow("P1", rate, "×", 0.65, 0.85, True, run, "r", beside=beside),
        BenchRow("P1", f"{cost}'s, {connections}", "×", 1.8, 1.4, False, run, "cpu"),
    )


def _batches() -> Iterator[BenchRow]:
    for what, told in (
        ("array of 1,000", "r_1000"),
        ("array of 10,000", "r_10000"),
        ("batch of 1,000, JSON", "batch_json"),
        ("batch of 1,000, NDJSON", "batch_ndjson"),
    ):
        beside = (
            BenchPeer("ours", BATCHES, f"{told}_per_s", "/s"),
            BenchPeer("COPY", BATCHES, f"{told}_copy_per_s", "/s"),
            BenchPeer("pgqueuer", PGQUEUER, "batch_per_s", "/s"),
        )
        copy = f"{what} ÷ COPY of its rows"
        yield BenchRow("P2", copy, "×", 0.6, 0.8, True, BATCHES, told, beside=beside)


def _cycles(queued: int) -> Iterator[BenchRow]:
    for words, name, must, stretch in (
        ("steady: CPU p50", "steady_cpu_ms", 12, 8),
        ("50 ends/s: CPU p50", "rush_cpu_ms", 25, 15),
        ("50 ends/s: wall p99", "rush_p99_ms", 100, 60),
    ):
        what, told = f"cycle, {queued:,} queued, {words}", f"{name}_{queued}"
        yield BenchRow("P4", what, "ms", must, stretch, False, DECIDE, told)


_SLURM_START = BenchPeer("Slurm", SLURM, "p50_ms", "ms")
_SLURM_DRAIN = BenchPeer("Slurm", SLURM, "per_s", "/s")

ROWS = (
    *_submissions(SUBMIT_16, 16),
    *_submissions(SUBMIT_64, 64),
    BenchRow("P1", "3 replicas: CPU per job ÷ of one", "×", 1.1, None, False, REPLICAS, "ratio"),
    *_batches(),
    BenchRow("P2", "others wait meanwhile", "ms", 50, None, False, BATCHES, "blocked_ms"),
    BenchRow("P2", "submissions by message", "/s", 1500, None, True, MESSAGES, "per_s"),
    BenchRow("P2", "CPU per submission by message", "ms", 1.0, None, False, MESSAGES, "cpu_ms"),
    BenchRow("P3", "submit → the command runs, p50", "ms", None, 30, False, START, "p50_ms"),
    BenchRow("P3", "the same ÷ Slurm's", "×", 0.08, None, False, START, "p50_ms", _SLURM_START),
    *_cycles(10_000),
    *_cycles(100_000),
    *_cycles(1_000_000),
    BenchRow("P4", "300 clusters: CPU p50", "ms", 60, None, False, GROWTH, "clusters_300_ms"),
    BenchRow("P4", "100,000 VMs: CPU p50", "ms", 100, None, False, GROWTH, "vms_100k_ms"),
    BenchRow("P4", "100,000 VMs: ready", "s", 8, None, False, GROWTH, "vms_100k_ready_s"),
    BenchRow("P4", "100,000 VMs: memory", "MB", 700, None, False, GROWTH, "vms_100k_mb"),
    BenchRow("P5", "10,000 VMs at 10 s: cores", "", 0.25, 0.15, False, DECIDE, "steady_cores"),
    BenchRow("P5", "heartbeats that waited", "/s", 15_000, None, True, CATCH_UP, "per_s"),
    BenchRow("P6", "slowest question, p99", "ms", 50, 20, False, READS, "worst_p99_ms"),
    BenchRow("P6", "largest answer", "kB", 200, None, False, READS, "worst_kb"),
    BenchRow("P7", "no-op jobs drained", "/s", None, None, True, DRAIN, "per_s"),
    BenchRow("P7", "the same ÷ Slurm's", "×", 1.5, 3, True, DRAIN, "per_s", _SLURM_DRAIN),
    BenchRow("P7", "CPU per job, all parts", "ms", 20, None, False, DRAIN, "cpu_ms"),
    BenchRow("P8", "replica: ready", "s", 1.5, None, False, DECIDE, "ready_s"),
    BenchRow("P8", "first cycle after a kill", "s", 6, None, False, TAKEOVER, "takeover_s"),
    BenchRow("P9", "zen jobs, wall", "ms", 150, 90, False, COMMANDS, "jobs_ms"),
    BenchRow("P9", "zen submit, wall", "ms", 150, 90, False, COMMANDS, "submit_ms"),
    BenchRow("P9", "zen show, wall", "ms", 150, 90, False, COMMANDS, "show_ms"),
    BenchRow("P9", "zen status, wall", "ms", 150, 90, False, COMMANDS, "status_ms"),
    BenchRow("P9", "zen jobs, CPU", "ms", None, None, False, COMMANDS, "jobs_cpu_ms"),
    BenchRow("P9", "zen --help, wall", "ms", 100, None, False, COMMANDS, "help_ms"),
    BenchRow("", "database bytes per finished job", "kB", 4, 2, False, STORED, "kb_per_job"),
    BenchRow("", "dead rows, share", "", 0.2, None, False, STORED, "dead_rows_share"),
    BenchRow("", "memory while jobs come and go", "MB", 5, None, False, STORED, "growth_mb"),
)
