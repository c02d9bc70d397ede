"""What a finished job leaves in the database, and whether memory stays flat while jobs come and go.

    python -m bench.stored_bytes [--jobs 10000]
    python -m bench.stored_bytes --minutes 60 [--rate 100]

A local stack runs no-op jobs, each submitted by a request of its own, a few hundred at a time. Then
every table and index that grew is shown with its bytes per job: as it is, and rewritten without
what updates left behind. What the first jobs brought is not counted: the tables have their first
pages then. With --minutes jobs come and go at a steady rate (bench/churn.py): the size of the
database, its dead rows and the memory of the process that leads are shown over time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psycopg
from rich.table import Table

from bench.churn import ChurnSample, churn, later
from bench.figures import tell
from bench.footprint import memory_mb
from bench.local import LocalStack, local_stack, wait_for
from bench.report import figure, show, verdict

CLUSTER = "1xl4"
VMS = 4
AT_ONCE = 200
BYTES_MAX = 4000.0
TOLD = ("kb_per_job", "growth_mb", "dead_rows_share")
_DEAD = (
    "SELECT sum(n_dead_tup) / greatest(1, sum(n_live_tup + n_dead_tup)) FROM pg_stat_user_tables"
)
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


def run_some(stack: LocalStack, churned: Churn, count: int) -> None:
    """So many jobs from their submission to their end."""
    for _ in range(count):
        stack.submit("true", gpu_type="l4")
    churned.done += count

    def over() -> bool | None:
        return True if stack.get("/status")["jobs"]["SUCCEEDED"] >= churned.done else None

    wait_for(f"{churned.done} jobs to end", over, 600, every_s=0.5)


def dead_share(stack: LocalStack) -> float:
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        row = connection.execute(_DEAD.encode()).fetchone()
    return float(row[0]) if row is not None else 0.0


def run(stack: LocalStack, churned: Churn, args: argparse.Namespace) -> None:
    began = time.monotonic()
    while True:
        minutes = (time.monotonic() - began) / 60
        rss, _ = memory_mb(stack.process("scheduler"))
        churned.rss_mb.append((minutes, churned.done, rss))
        if churned.done >= args.jobs + AT_ONCE:
            return
        run_some(stack, churned, AT_ONCE)


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


def memory_table(churned: Churn) -> Table:
    table = Table("minutes", "jobs", "RSS of the scheduler, MB")
    step = max(1, len(churned.rss_mb) // 20)
    for minutes, jobs, rss in churned.rss_mb[::step]:
        table.add_row(figure(minutes), f"{jobs:,}", figure(rss))
    return table


def growth_mb(churned: Churn) -> float:
    """Over the second half: the first one fills caches."""
    half = churned.rss_mb[len(churned.rss_mb) // 2 :]
    return half[-1][2] - half[0][2]


def over_time(samples: Sequence[ChurnSample]) -> Table:
    table = Table("minutes", "jobs", "queued", "database, MB", "kB/job", "dead rows", "RSS, MB")
    first = samples[0]
    step = max(1, len(samples) // 20)
    for one in (*samples[1:-1:step], samples[-1]):
        table.add_row(
            figure(one.minutes),
            f"{one.jobs:,}",
            f"{one.queued:,}",
            figure(one.db_mb),
            figure(_kb_per_job(first, one)),
            f"{one.dead_rows:,} ({100 * one.dead_share:.0f} %)",
            figure(one.rss_mb),
        )
    return table


def _kb_per_job(first: ChurnSample, last: ChurnSample) -> float:
    return (last.db_mb - first.db_mb) * 2**20 / 1000 / max(1, last.jobs - first.jobs)


def come_and_go(minutes: float, rate: float) -> None:
    samples: list[ChurnSample] = []
    churn(minutes, rate, samples.append)
    first, half, last = samples[0], later(samples), samples[-1]
    kb, late_kb = _kb_per_job(first, last), _kb_per_job(half[0], last)
    growth = last.rss_mb - half[0].rss_mb
    share = max(one.dead_share for one in half)
    tell(kb_per_job=kb, growth_mb=growth, dead_rows_share=share)
    held = (last.jobs - first.jobs) / (60 * (last.minutes - first.minutes))
    show(
        over_time(samples),
        f"{figure(held)} jobs/s of {figure(rate)}. {figure(kb)} kB per job, "
        f"{figure(late_kb)} kB from minute {figure(half[0].minutes)} on "
        f"({verdict(1000 * late_kb, BYTES_MAX)}): autovacuum keeps up if it is no more. Since "
        f"then memory grew by {growth:+.1f} MB, and dead rows were {100 * share:.0f} % at most.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--rate", type=float, default=100.0, help="jobs a second, with --minutes")
    args = parser.parse_args()
    if args.minutes:
        come_and_go(args.minutes, args.rate)
        return
    with local_stack({"clusters": {CLUSTER: {"vm_max": VMS}}}) as stack:
        churned = Churn()
        run_some(stack, churned, AT_ONCE)
        before, first = sizes(stack), churned.done
        run(stack, churned, args)
        after, share = sizes(stack), dead_share(stack)
        rewrite(stack)
        least = sizes(stack)
    jobs = churned.done - first
    total = sum(after.values()) - sum(before.get(key, 0) for key in after)
    growth = growth_mb(churned)
    tell(kb_per_job=total / jobs / 1000, growth_mb=growth, dead_rows_share=share)
    show(memory_table(churned), f"Second half: {growth:+.1f} MB.")
    show(bytes_table(before, after, least, jobs))


if __name__ == "__main__":
    main()
