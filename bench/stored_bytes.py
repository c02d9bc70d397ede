"""What a finished job leaves in the database, and whether memory stays flat while jobs come and go.

    python -m bench.stored_bytes [--jobs 10000] [--minutes 0]

A local stack runs no-op jobs, each submitted by a request of its own, a few hundred at a time. Then
every table and index that grew is shown with its bytes per job: as it is, and rewritten without
what updates left behind. With --minutes the jobs come and go for so long instead, and the
scheduler's memory is shown over time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg
from rich.table import Table

from bench.footprint import memory_mb
from bench.local import LocalStack, local_stack, wait_for
from bench.report import figure, show, verdict

CLUSTER = "1xl4"
VMS = 4
AT_ONCE = 200
BYTES_MAX = 4000.0
_SIZES = """
SELECT t.relname, coalesce(i.indexrelid::regclass::text, ''),
    CASE WHEN i.indexrelid IS NULL THEN pg_relation_size(t.oid)
        + coalesce(pg_total_relation_size(nullif(t.reltoastrelid, 0)), 0)
    ELSE pg_relation_size(i.indexrelid) END
FROM pg_class AS t LEFT JOIN LATERAL (
    SELECT indexrelid FROM pg_index WHERE indrelid = t.oid UNION ALL SELECT NULL
) AS i ON true
WHERE t.relkind = 'r' AND t.relnamespace = 'public'::regnamespace
"""
Sizes = Mapping[tuple[str, str], int]
"""(table, index or nothing) → bytes."""


@dataclass(slots=True)
class Churn:
    """Jobs that were run, and the scheduler's memory meanwhile."""

    done: int = 0
    rss_mb: list[tuple[float, int, float]] = field(default_factory=list)
    """(minutes, jobs so far, RSS)."""


def sizes(stack: LocalStack) -> Sizes:
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        rows = connection.execute(_SIZES.encode()).fetchall()
    return {(str(table), str(index)): int(size) for table, index, size in rows}


def rewrite(stack: LocalStack) -> None:
    """Everything without dead rows."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(b"VACUUM FULL")


def run_some(stack: LocalStack, churn: Churn, count: int) -> None:
    """So many jobs from their submission to their end."""
    for _ in range(count):
        stack.submit("true", gpu_type="l4")
    churn.done += count

    def over() -> bool | None:
        return True if stack.get("/status")["jobs"]["SUCCEEDED"] >= churn.done else None

    wait_for(f"{churn.done} jobs to end", over, 600, every_s=0.5)


def run(stack: LocalStack, churn: Churn, args: argparse.Namespace) -> None:
    began = time.monotonic()
    while True:
        minutes = (time.monotonic() - began) / 60
        rss, _ = memory_mb(stack.process("scheduler"))
        churn.rss_mb.append((minutes, churn.done, rss))
        if minutes >= args.minutes if args.minutes else churn.done >= args.jobs:
            return
        run_some(stack, churn, AT_ONCE)


def bytes_table(before: Sizes, after: Sizes, least: Sizes, jobs: int) -> Table:
    """What grew by a byte per job or more."""
    table = Table("table", "index", "bytes per job", "rewritten", title=f"{jobs:,} jobs")
    grown = {key: (after[key] - before.get(key, 0)) / jobs for key in after}
    bare = {key: (least[key] - before.get(key, 0)) / jobs for key in after}
    for key in sorted(grown, key=lambda key: -grown[key]):
        if grown[key] >= 1:
            table.add_row(*key, figure(grown[key]), figure(max(0.0, bare[key])))
    total, rewritten = sum(grown.values()), sum(bare.values())
    table.add_row("all", "", f"{figure(total)} ({verdict(total, BYTES_MAX)})", figure(rewritten))
    return table


def memory_table(churn: Churn) -> Table:
    table = Table("minutes", "jobs", "RSS of the scheduler, MB")
    step = max(1, len(churn.rss_mb) // 20)
    for minutes, jobs, rss in churn.rss_mb[::step]:
        table.add_row(figure(minutes), f"{jobs:,}", figure(rss))
    return table


def slope(churn: Churn) -> str:
    """Over the second half: the first one fills caches."""
    half = churn.rss_mb[len(churn.rss_mb) // 2 :]
    (first, jobs, low), (last, more, high) = half[0], half[-1]
    if last <= first:
        return "too short for a slope"
    per_1000 = 1000 * (high - low) / max(1, more - jobs)
    per_hour = 60 * (high - low) / (last - first)
    return f"second half: {per_hour:+.1f} MB/h, {per_1000:+.2f} MB per 1,000 jobs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=0.0)
    args = parser.parse_args()
    with local_stack({"clusters": {CLUSTER: {"vm_max": VMS}}}) as stack:
        churn = Churn()
        run_some(stack, churn, VMS)
        before = sizes(stack)
        run(stack, churn, args)
        after = sizes(stack)
        rewrite(stack)
        least = sizes(stack)
    show(memory_table(churn), slope(churn))
    show(bytes_table(before, after, least, churn.done))


if __name__ == "__main__":
    main()
