"""Enqueues with pgqueuer, as fast as it goes. Started by bench.pgqueuer with the interpreter of a
virtual environment that has pgqueuer and asyncpg; nothing of this project is imported.

    python -I bench/pgqueuer_client.py URL SECONDS CONNECTIONS BATCH

Prints jobs per second.
"""

from __future__ import annotations

import asyncio
import sys
import time

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

BODY = b'{"command": ["true"], "gpu_type": "l4"}'
WARM_UP_S = 1.0


async def enqueue_until(queries: Queries, batch: int, until: float) -> int:
    """One connection, one statement at a time."""
    done = 0
    while time.perf_counter() < until:
        if batch == 1:
            await queries.enqueue("noop", BODY)
        else:
            await queries.enqueue(["noop"] * batch, [BODY] * batch, [0] * batch)
        done += batch
    return done


async def rate(url: str, seconds: float, connections: int, batch: int) -> float:
    opened = [await asyncpg.connect(url) for _ in range(connections)]
    clients = [Queries(AsyncpgDriver(one)) for one in opened]
    if not await clients[0].schema_is_installed():
        await clients[0].install()

    async def load(lasts_s: float) -> float:
        began = time.perf_counter()
        until = began + lasts_s
        done = await asyncio.gather(*(enqueue_until(one, batch, until) for one in clients))
        return sum(done) / (time.perf_counter() - began)

    await load(WARM_UP_S)
    found = await load(seconds)
    for one in opened:
        await one.close()
    return found


if __name__ == "__main__":
    words = sys.argv[1:]
    print(asyncio.run(rate(words[0], float(words[1]), int(words[2]), int(words[3]))))
