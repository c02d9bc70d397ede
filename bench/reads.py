"""How long people wait for lists and counts with a million jobs stored.

    python -m bench.reads [--jobs 1000000] [--rounds 40]

A local stack whose VMs are busy; the jobs are written into its database directly, a tenth of them
QUEUED. Each question is asked on one kept connection, one at a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from bench.figures import tell
from bench.local import LocalStack, local_stack, wait_for
from bench.many_jobs import ManyJobs, fill_jobs
from bench.report import figure, quantile, show, verdict

CLUSTER = "1xl4"
HOLD_S = 3600
VMS = 1
P99_MS = 50.0
PAGE_KB = 200.0
TOLD = ("worst_p99_ms", "worst_kb")
QUESTIONS = {
    "jobs": "/api/v1/jobs",
    "jobs, second page": "/api/v1/jobs?page_token=",
    "jobs of a cluster": f"/api/v1/jobs?cluster={CLUSTER}",
    "jobs of a user": "/api/v1/jobs?user_id=user-77",
    "jobs of an unknown user": "/api/v1/jobs?user_id=nobody",
    "jobs of a tenant": "/api/v1/jobs?tenant_id=tenant-0007",
    "jobs that failed": "/api/v1/jobs?status=FAILED",
    "jobs that run": "/api/v1/jobs?state=running",
    "jobs that failed in a cluster": f"/api/v1/jobs?cluster={CLUSTER}&status=FAILED",
    "jobs that wait": "/api/v1/jobs?status=QUEUED",
    "jobs with a label": "/api/v1/jobs?label=team=team-7",
    "jobs with a rare label": "/api/v1/jobs?label=rare=yes",
    "jobs with an unknown label": "/api/v1/jobs?label=team=nobody",
    "one job": "/api/v1/jobs/job-77",
    "status": "/api/v1/status",
    "status (v1)": "/status",
    "stats": "/stats",
    "cluster status": "/api/v1/cluster/status",
    "metrics": "/metrics",
    "clusters": "/api/v1/clusters",
    "tenants": "/api/v1/tenants",
    "one tenant": "/api/v1/tenants/tenant-0007",
}


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """What one question cost."""

    p50_ms: float
    p99_ms: float
    kb: float


def ask(stack: LocalStack, path: str, rounds: int) -> ReadTimes:
    """The first rounds fill caches and prepare statements."""
    taken, size = [], 0
    for number in range(rounds + 6):
        began = time.perf_counter()
        answer = stack.client.get(path)
        lasted = time.perf_counter() - began
        answer.raise_for_status()
        if number >= 6:
            taken.append(1000 * lasted)
        size = len(answer.content)
    return ReadTimes(quantile(taken, 0.5), quantile(taken, 0.99), size / 1000)


def paths(stack: LocalStack) -> Mapping[str, str]:
    token = stack.get("/jobs")["next_page_token"]
    return {name: path + (token if path.endswith("=") else "") for name, path in QUESTIONS.items()}


def hold(stack: LocalStack) -> None:
    """Every VM of the cluster is busy, so the queue stays as it is."""
    for _ in range(VMS):
        stack.submit("sleep", str(HOLD_S), gpu_type="l4")

    def all_run() -> bool | None:
        return True if stack.get("/status")["jobs"]["RUNNING"] == VMS else None

    wait_for(f"{VMS} running jobs", all_run, 120, every_s=0.2)


def table_of(found: Mapping[str, ReadTimes], args: argparse.Namespace) -> Table:
    title = f"{args.jobs:,} jobs, {args.rounds} rounds"
    columns = ("", "p50, ms", "p99, ms", f"≤ {P99_MS:g} ms", "kB", f"≤ {PAGE_KB:g} kB")
    table = Table(*columns, title=title)
    for name, one in found.items():
        table.add_row(
            name,
            figure(one.p50_ms),
            figure(one.p99_ms),
            verdict(one.p99_ms, P99_MS),
            figure(one.kb),
            verdict(one.kb, PAGE_KB),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    with local_stack({"clusters": {CLUSTER: {"vm_max": VMS}}}) as stack:
        hold(stack)
        names = [row["name"] for row in stack.get("/clusters")["clusters"]]
        names.sort(key=lambda name: name != CLUSTER)
        fill_jobs(stack.database_url, ManyJobs(args.jobs, names))
        found = {name: ask(stack, path, args.rounds) for name, path in paths(stack).items()}
    tell(
        worst_p99_ms=max(one.p99_ms for one in found.values()),
        worst_kb=max(one.kb for one in found.values()),
    )
    show(table_of(found, args))


if __name__ == "__main__":
    main()
