"""Jobs that do nothing, drained by the local stack: what the road itself can carry.

    python -m bench.loop [--jobs 200] [--slots 8]

One array of jobs is submitted, as bench.slurm does, then the VMs of its cluster (as many as this
machine is allowed, 8 at most) work through it, one job at a time each, or 8 (--slots 64). The
processes' CPU time says where the work is done; the jobs' timelines say where a job waits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

import psutil
import psycopg
from rich.table import Table

from bench.figures import tell
from bench.local import LocalStack, local_stack, seconds_of, wait_for
from bench.report import figure, quantile, show

VMS = 8
GPU_TYPE = "l4"
CLUSTERS = {8: "1xl4", 64: "8xl4"}
"""By the jobs that run at once on all VMs."""
TOLD = ("per_s", "cpu_ms", "kb_per_job")
STEPS = (
    ("placed", "claimed", "start sent → claimed by the VM"),
    ("claimed", "started", "claimed → running"),
    ("started", "exited_ok", "running → end known"),
)


def warm_up(stack: LocalStack, slots: int) -> None:
    """All VMs booted: they are asked for by jobs that overlap."""
    at_once = slots * min(VMS, stack.run["vm_cap"]) // VMS
    jobs = [submit(stack, slots, "sleep", "3") for _ in range(at_once)]
    for job in jobs:
        stack.finish(job)


def submit(stack: LocalStack, slots: int, *command: str, **fields: str) -> str:
    return stack.submit(*command, gpu_type=GPU_TYPE, gpu_count=1, cluster=CLUSTERS[slots], **fields)


def cpu_times(stack: LocalStack) -> dict[str, float]:
    """CPU seconds so far, by part. Jobs and their shims count once they have been waited for."""
    parts = {name: [stack.process(name)] for name in ("scheduler", "bus", "cloud")}
    postgres = stack.process("postgres")
    parts["postgres"] = [postgres, *postgres.children(recursive=True)]
    parts["agents"] = stack.agents()
    spent = {name: sum(map(_cpu, processes)) for name, processes in parts.items()}
    below = [child for agent in parts["agents"] for child in agent.children(recursive=True)]
    ended = [process.cpu_times() for process in (*parts["agents"], *below)]
    waited = sum(times.children_user + times.children_system for times in ended)
    spent["jobs and their shims"] = waited + sum(map(_cpu, below))
    return spent


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def cycles(stack: LocalStack) -> float:
    """How often the loop has turned."""
    for line in stack.client.get("/metrics").text.splitlines():
        if line.startswith("gpu_scheduler_scheduling_latency_count"):
            return float(line.split()[-1])
    raise RuntimeError("no gpu_scheduler_scheduling_latency_count in /metrics")


def stored_kb(stack: LocalStack) -> float:
    """All tables and indexes of the service."""
    with psycopg.connect(stack.database_url) as connection:
        query = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind IN ('r', 'p')"
        row = connection.execute(query + " AND relnamespace = 'public'::regnamespace").fetchone()
    assert row is not None
    return float(row[0]) / 1000


def drain(stack: LocalStack, count: int, slots: int) -> tuple[list[str], float]:
    """The jobs and how long it took from the POST of one array, as bench.slurm submits them, to the
    last end."""

    def done() -> bool | None:
        waiting = stack.get("/jobs", state=["pending", "scheduled", "running"], page_size=1)
        return None if waiting["total"] else True

    began = time.perf_counter()
    array = submit(stack, slots, "true", array=f"0-{count - 1}")
    wait_for("the end of all jobs", done, 30 + count, every_s=0.1)
    took_s = time.perf_counter() - began
    if lost := stack.get("/jobs", status=["FAILED", "CANCELLED"], page_size=1)["total"]:
        raise RuntimeError(f"{lost} of {count} jobs did not succeed")
    return [f"{array}-{index}" for index in range(count)], took_s


def step_times(stack: LocalStack, jobs: list[str]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for _, _, name in STEPS}
    for job in jobs:
        seen = {event["event"]: seconds_of(event["at"]) for event in stack.events(job)}
        for before, after, name in STEPS:
            if before in seen and after in seen:
                times[name].append(1000 * (seen[after] - seen[before]))
    return times


def cpu_table(spent: Mapping[str, float], jobs: int) -> Table:
    total = sum(spent.values())
    table = Table("part", "CPU ms per job", "share", title="Where the work is done")
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        table.add_row(name, figure(1000 * seconds / jobs), f"{100 * seconds / total:.0f} %")
    return table


def wait_table(times: Mapping[str, list[float]]) -> Table:
    table = Table("step, ms", "p50", "p90", "p99", title="Where a job waits once it has a VM")
    for name, values in times.items():
        table.add_row(name, *(figure(quantile(values, share)) for share in (0.5, 0.9, 0.99)))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--slots", type=int, choices=CLUSTERS, default=VMS, help="jobs at once")
    args = parser.parse_args()
    count, cluster = args.jobs, {"vm_max": VMS, "share": args.slots > VMS}
    with local_stack({"clusters": {CLUSTERS[args.slots]: cluster}}) as stack:
        warm_up(stack, args.slots)
        cpu_before, cycles_before, kb_before = cpu_times(stack), cycles(stack), stored_kb(stack)
        jobs, took_s = drain(stack, count, args.slots)
        cpu_after, cycles_after = cpu_times(stack), cycles(stack)
        kb_per_job = (stored_kb(stack) - kb_before) / count
        times = step_times(stack, jobs)
        vms = len(stack.agents())
    spent = {name: cpu_after[name] - cpu_before[name] for name in cpu_after}
    busy = sum(spent.values()) / took_s
    cpu_ms = 1000 * sum(spent.values()) / count
    tell(per_s=count / took_s, cpu_ms=cpu_ms, kb_per_job=kb_per_job)
    show(cpu_table(spent, count))
    show(
        wait_table(times),
        f"{count} jobs on {vms} VMs in {took_s:.1f} s: {count / took_s:.1f} jobs/s, "
        f"{(cycles_after - cycles_before) / count:.1f} cycles per job, "
        f"{busy:.1f} of {psutil.cpu_count()} cores busy with it, {kb_per_job:.1f} kB of tables and "
        "indexes per job.",
    )


if __name__ == "__main__":
    main()
