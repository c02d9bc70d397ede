"""The rows of `python -m bench.all`: what is measured, by which command, and what it must reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One command; several rows may read what it tells."""

    module: str
    words: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = None
    """Instead of `words`, on smaller sizes."""

    def command(self, quick: bool) -> tuple[str, ...]:
        words = self.words if not quick or self.quick is None else self.quick
        return ("-m", self.module, *words)


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
    peer: BenchRun | None = None
    """The figure is divided by what this one tells under the same name."""

    @property
    def runs(self) -> tuple[BenchRun, ...]:
        return tuple(run for run in (self.run, self.peer) if run is not None)

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


SUBMIT_16 = BenchRun("bench.submit_rate", ("--connections", "16"), ("--seconds", "3"))
SUBMIT_64 = BenchRun(
    "bench.submit_rate", ("--connections", "64"), ("--connections", "64", "--seconds", "3")
)
MESSAGES = BenchRun("bench.submit_messages", (), ("--messages", "2000"))
START = BenchRun("bench.start_latency", (), ("--jobs", "15"))
DECIDE = BenchRun(
    "bench.decide",
    ("--no-baseline",),
    ("--no-baseline", "--queued", "10000", "--seconds", "10"),
)
CATCH_UP = BenchRun(
    "bench.catch_up", ("--vms", "10000", "--heartbeats", "10"), ("--vms", "2000", "--no-fsync")
)
READS = BenchRun("bench.reads", (), ("--jobs", "100000", "--rounds", "15"))
DRAIN = BenchRun("bench.loop", (), ("--jobs", "100"))
SLURM = BenchRun("bench.slurm", (), ("--jobs", "10", "--drained", "60"))
COMMANDS = BenchRun("bench.command_line", (), ("--rounds", "10"))

ROWS = (
    BenchRow("P1", "single POST ÷ ceiling, 16 connections", "×", 0.65, 0.85, True, SUBMIT_16, "r"),
    BenchRow("P1", "CPU of the server ÷ ceiling's, 16", "×", 1.8, 1.4, False, SUBMIT_16, "cpu"),
    BenchRow("P1", "single POST ÷ ceiling, 64 connections", "×", 0.65, 0.85, True, SUBMIT_64, "r"),
    BenchRow("P1", "CPU of the server ÷ ceiling's, 64", "×", 1.8, 1.4, False, SUBMIT_64, "cpu"),
    BenchRow("P1", "3 replicas: CPU per job ÷ that of one", "×", 1.1),
    BenchRow("P2", "array of 10,000 ÷ COPY of the same rows", "×", 0.6, 0.8, True),
    BenchRow("P2", "submissions by message", "/s", 1500, None, True, MESSAGES, "per_s"),
    BenchRow("P2", "CPU per submission by message", "ms", 1.0, None, False, MESSAGES, "cpu_ms"),
    BenchRow("P3", "submit → the command runs, p50", "ms", None, 30, False, START, "p50_ms"),
    BenchRow("P3", "the same ÷ Slurm's", "×", 0.08, None, False, START, "p50_ms", SLURM),
    BenchRow("P4", "cycle, steady: CPU p50", "ms", 12, 8, False, DECIDE, "steady_cpu_ms"),
    BenchRow("P4", "cycle, 50 ends/s: CPU p50", "ms", 25, 15, False, DECIDE, "rush_cpu_ms"),
    BenchRow("P4", "cycle, 50 ends/s: wall p99", "ms", 100, 60, False, DECIDE, "rush_p99_ms"),
    BenchRow("P5", "10,000 VMs at 10 s: cores", "", 0.25, 0.15, False, DECIDE, "steady_cores"),
    BenchRow("P5", "heartbeats that waited", "/s", 15_000, None, True, CATCH_UP, "per_s"),
    BenchRow("P6", "slowest question, p99", "ms", 50, 20, False, READS, "worst_p99_ms"),
    BenchRow("P6", "largest answer", "kB", 200, None, False, READS, "worst_kb"),
    BenchRow("P7", "no-op jobs drained", "/s", None, None, True, DRAIN, "per_s"),
    BenchRow("P7", "the same ÷ Slurm's", "×", 1.5, 3, True, DRAIN, "per_s", SLURM),
    BenchRow("P7", "CPU per job, all parts", "ms", 20, None, False, DRAIN, "cpu_ms"),
    BenchRow("P8", "replica: ready", "s", 1.5, None, False, DECIDE, "ready_s"),
    BenchRow("P8", "first cycle after a kill of the leader", "s", 6),
    BenchRow("P9", "zen jobs, wall", "ms", 150, 90, False, COMMANDS, "jobs_ms"),
    BenchRow("P9", "zen submit, wall", "ms", 150, 90, False, COMMANDS, "submit_ms"),
    BenchRow("P9", "zen show, wall", "ms", 150, 90, False, COMMANDS, "show_ms"),
    BenchRow("P9", "zen status, wall", "ms", 150, 90, False, COMMANDS, "status_ms"),
    BenchRow("P9", "zen jobs, CPU", "ms", None, None, False, COMMANDS, "jobs_cpu_ms"),
    BenchRow("P9", "zen --help, wall", "ms", 100, None, False, COMMANDS, "help_ms"),
    BenchRow("", "database bytes per finished job", "kB", 4, 2, False, DRAIN, "kb_per_job"),
    BenchRow("", "memory over an hour of churn: growth", "MB", 0),
)
