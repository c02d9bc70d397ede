"""Costs on PostgreSQL: random histories checked by another road, settlers at once, and no scans."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest

from core.cost_report import CostQuestion, usd
from db import cost, migrate, reads
from db.cost_check import cost_faults
from db.reads import PostgresReads
from db.store import PostgresStore

pytestmark = pytest.mark.slow
_OUTCOMES = ("exited_ok", "exited_error", "vm_lost", "spot_taken", "yielded", "stopped")

# VMs of the last weeks with attempts one after the other, some of them at once; jobs of 3 tenants.
_JOBS = """
INSERT INTO jobs (uid, tenant_id, user_id, job_id, name, cluster, status, priority, spec,
    content_hash, version, attempt, submitted_at, status_since, queued_since, ended_at)
SELECT gen_random_uuid(), 't' || n % 3, 'u' || n % 5, 'j' || n, '', 'c', 'SUCCEEDED', 1, '{}',
    'h', 1, 1, now(), now(), now(), now() FROM generate_series(1, COUNT) AS n
"""
_VM = """
INSERT INTO vms (uid, name, cluster, region, state, version, request_id, gpus, spot, usd_per_hour,
    requested_at, state_since, caused_by, idle_max_s, running_since, ready_at, stopped_at, gone_at)
VALUES (gen_random_uuid(), %(name)s, %(cluster)s, %(region)s, %(state)s, 1, 'q', 4, %(spot)s, 2.5,
    now(), now(), (SELECT uid FROM jobs WHERE job_id = %(asker)s), 1e9,
    now() - make_interval(secs => %(run)s), now() - make_interval(secs => %(ready)s),
    now() - make_interval(secs => %(off)s), now() - make_interval(secs => %(gone)s))
RETURNING uid
"""
_ATTEMPT = """
INSERT INTO attempts (uid, attempt, lease_id, vm_uid, vm_name, region, zone, slots, usd_per_hour,
    assigned_at, ended_at, outcome, checkpoint_at)
SELECT uid, 1, uid::text, %(vm)s, 'v', 'r', 'z', %(slots)s::jsonb, 2.5,
    now() - make_interval(secs => %(since)s), now() - make_interval(secs => %(until)s),
    %(outcome)s, now() - make_interval(secs => %(saved)s) FROM jobs WHERE job_id = %(job)s
"""


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(database_url)
    await opened.open()
    yield opened
    await opened.close()


async def make_history(url: str, dice: random.Random, vms: int) -> None:
    """Random lives: hedges, minutes and days, VMs that live, attempts that overlap."""
    numbers = iter(range(1, 10_000))
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(_JOBS.replace("COUNT", str(vms * 5)).encode())
        for number in range(vms):
            run = dice.uniform(5, 20 * 86400)
            off = dice.choice([None, dice.uniform(0, run)])
            ready = dice.choice([None, dice.uniform(off or 0, run)])
            words = {
                "name": f"vm-{number}",
                "cluster": f"c{number % 2}",
                "region": f"r{number % 3}",
                "state": "READY" if off is None else "GONE",
                "spot": bool(number % 2),
                "run": run,
                "ready": ready,
                "off": dice.choice([None, off]),
                "gone": off and off * 0.9,
                "asker": dice.choice([None, f"j{dice.randrange(1, vms * 5)}"]),
            }
            row = await (await connection.execute(_VM.encode(), words)).fetchone()
            assert row is not None
            for _ in range(dice.randrange(5) if ready else 0):
                await _stay(connection, dice, row[0], f"j{next(numbers)}", ready or 0, off or 0)


async def _stay(
    connection: psycopg.AsyncConnection,
    dice: random.Random,
    vm: object,
    job: str,
    up: float,
    off: float,
) -> None:
    since = dice.uniform(off, up)
    until = None if off == 0 and dice.random() < 0.3 else dice.uniform(off, since)
    words = {
        "vm": vm,
        "job": job,
        "slots": str(list(range(dice.randrange(5)))),
        "since": since,
        "until": until,
        "outcome": "" if until is None else dice.choice(_OUTCOMES),
        "saved": dice.choice([None, dice.uniform(until or 0, since)]),
    }
    await connection.execute(_ATTEMPT.encode(), words)


async def test_random_histories_add_up(store: PostgresStore, database_url: str) -> None:
    """Whatever happened, what was attributed is what was billed, by day and place; reports before
    and after settling say the same; nothing is counted twice by settlers at once."""
    await make_history(database_url, random.Random(7), 60)
    asker = PostgresReads(store)
    today = (await store.snapshot(0)).now.date()
    question = CostQuestion("kind", today.replace(year=today.year - 1), today)
    before = usd((await asker.cost(question)).total.values())
    while any(
        done.vms for done in await asyncio.gather(store.settle_costs(7), store.settle_costs(5))
    ):
        pass
    assert await cost_faults(store) == []
    assert usd((await asker.cost(question)).total.values()) == pytest.approx(before, rel=1e-3)
    billed = "SELECT sum(extract(epoch FROM settled_until - running_since)) FROM vms"
    parts = "SELECT sum(vm_seconds), sum(gpu_seconds) FROM cost_daily"
    async with store.connection() as connection:
        whole = await (await connection.execute(billed.encode())).fetchone()
        summed = await (await connection.execute(parts.encode())).fetchone()
    assert whole is not None
    assert summed is not None
    assert float(whole[0]) == pytest.approx(summed[0])
    assert summed[1] == pytest.approx(4 * summed[0])
    tenants = await asker.cost(replace(question, by="tenant"))
    everything = sum(usd(costs.values()) for costs in tenants.rows.values())
    assert round(everything, 2) == round(usd(tenants.total.values()), 2)
    assert {"boot", "idle", "hedge", "useful"} <= {str(kind) for kind in tenants.rows["t0"]}


async def test_cost_check_sees_what_is_wrong(store: PostgresStore, database_url: str) -> None:
    """A second too many, a bill that ends too early, a job's cost that no day has."""
    await make_history(database_url, random.Random(8), 20)
    while (await store.settle_costs(10)).vms:
        pass
    assert await cost_faults(store) == []
    async with store.connection() as connection:
        await connection.execute(b"UPDATE cost_daily SET vm_seconds = vm_seconds + 1")
        await connection.execute(b"UPDATE job_costs SET usd = usd + 1")
        await connection.execute(b"UPDATE vms SET gone_at = now(), stopped_at = NULL WHERE settled")
    faults = "\n".join(await cost_faults(store))
    assert "attributed" in faults
    assert "USD by job" in faults
    assert "is settled until" in faults


async def test_cost_check_sees_a_cent(store: PostgresStore, database_url: str) -> None:
    """Dollars that no VM was billed for, though the seconds are right."""
    await make_history(database_url, random.Random(9), 20)
    while (await store.settle_costs(10)).vms:
        pass
    assert await cost_faults(store) == []
    async with store.connection() as connection:
        query = "UPDATE cost_daily SET usd = usd + 0.01 WHERE tenant_id = '' AND kind = 'boot'"
        await connection.execute(query.encode())
    assert any("attributed" in fault for fault in await cost_faults(store))


_MANY_VMS = """
INSERT INTO vms (uid, name, cluster, region, state, version, request_id, gpus, spot, usd_per_hour,
    requested_at, state_since, running_since, ready_at, gone_at, settled)
SELECT uid, job_id, 'c', 'r', CASE WHEN n < 3900 THEN 'GONE' ELSE 'READY' END, 1, 'q', 1, false, 1,
    now(), now(), now() - interval '1 d', now() - interval '1 d',
    CASE WHEN n < 3900 THEN now() END, n < 3900
FROM (SELECT uid, job_id, row_number() OVER () AS n FROM jobs) AS j;
INSERT INTO attempts (uid, attempt, lease_id, vm_uid, vm_name, region, zone, usd_per_hour,
    assigned_at, ended_at, outcome)
SELECT uid, 1, uid::text, uid, 'v', 'r', 'z', 1, now() - interval '1 h', now(), 'ok' FROM jobs;
INSERT INTO job_costs SELECT uid, now()::date, 'useful', 1, 1, 1 FROM jobs;
"""


async def test_no_history_is_scanned(database_url: str) -> None:
    """A job's costs, the VMs that are due and the VMs that live are found by index, however many
    there have been."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(_JOBS.replace("COUNT", "4000").encode())
        await connection.execute(_MANY_VMS.encode())
        await connection.execute(b"VACUUM ANALYZE")
        page = f"SELECT {reads.JOB_ROW} FROM jobs AS j WHERE j.job_id = 'j77'"  # noqa: S608
        for query in (page, cost.DUE.replace("%s", "10"), cost.LIVES):
            rows = await (await connection.execute(f"EXPLAIN {query}".encode())).fetchall()
            plan = "\n".join(row[0] for row in rows)
            assert "Seq Scan" not in plan, plan


async def test_costs_from_before_are_kept(empty_database_url: str) -> None:
    """An attempt whose VM was pruned before bills were settled still counts for its job."""
    url = empty_database_url
    migrate.upgrade(url)
    migrate.downgrade(url, "0005")
    old = """
INSERT INTO attempts (uid, attempt, lease_id, vm_uid, vm_name, region, zone, usd_per_hour,
    assigned_at, ended_at, outcome)
SELECT uid, 1, 'l', gen_random_uuid(), 'v', 'r', 'z', 2, now() - interval '3 h', now(), 'exited_ok'
FROM jobs
"""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(_JOBS.replace("COUNT", "1").encode())
        await connection.execute(old.encode())
    migrate.upgrade(url)
    store = PostgresStore(url)
    await store.open()
    try:
        async with store.connection() as connection:
            query = "SELECT past_cost_usd FROM jobs"
            row = await (await connection.execute(query.encode())).fetchone()
        assert row == (pytest.approx(6.0),)
    finally:
        await store.close()
