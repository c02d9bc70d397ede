"""The least a durable submission can cost: bare ASGI, msgspec, group commit; no checks, no routes.

Started by bench.submit_rate as `python -m bench.ceiling DATABASE_URL`; says its port on stdout.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
import uvicorn
import uvloop

from core.changes import NewJob
from core.clock import SystemClock
from core.ids import RandomIds
from core.job import JobEvent
from core.job_fields import JobSpec
from core.job_steps import entry_for, new_job
from core.submission import content_hash
from db.store import PostgresStore
from scheduler.submission.group_commit import GroupCommit

CLUSTER = "1xl4"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Bare:
    """One road: any request is a submission."""

    def __init__(self, store: PostgresStore) -> None:
        self._group = GroupCommit(store)
        self._clock, self._ids = SystemClock(), RandomIds()

    async def __call__(self, _scope: Message, receive: Receive, send: Send) -> None:
        body = msgspec.json.decode(await _body(receive))
        now = self._clock.now()
        uid = self._ids.uid(now)
        spec = JobSpec(job_id=f"j-{uid}", command=tuple(body["command"]))
        job = new_job(uid, spec, CLUSTER, now)
        entry = entry_for(None, job, JobEvent.SUBMITTED)
        await self._group.submit((NewJob(job, entry, content_hash(spec)),))
        answer = msgspec.json.encode({"job_id": spec.job_id})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def serve(database_url: str) -> None:
    store = PostgresStore(database_url)
    await store.open()
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(Bare(store), log_config=None, access_log=False, lifespan="off")
    print(listening.getsockname()[1], flush=True)
    try:
        await uvicorn.Server(config).serve(sockets=[listening])
    finally:
        await store.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1]))
