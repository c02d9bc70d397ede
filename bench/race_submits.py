"""The same submission many times at once: one job, and every answer is the same."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import httpx

from bench.house import NAMES, SETTINGS, BenchBus
from bench.report import RaceResult
from config.live import LiveSettings
from core.clock import SystemClock
from core.ids import RandomIds
from core.messages import InMessage
from core.submit_topics import TopicBinding
from core.tenants import DEFAULT_TENANT
from db.history_check import check_history
from db.reads import PostgresReads
from db.secrets import PostgresSecrets
from db.store import PostgresStore
from scheduler.api.caller import TenantReads
from scheduler.api.http.app import create_app
from scheduler.api.services import Services
from scheduler.operations.metrics import Metrics
from scheduler.secrets.tenant_secrets import TenantSecrets
from scheduler.submission.group_commit import GroupCommit
from scheduler.submission.message_submitters import SubmitTopic
from scheduler.submission.pubsub_intake import IntakePorts, SubmissionIntake
from scheduler.submission.submit import SubmissionPorts, Submissions
from tests.access import OWNER, bearer, owner_only

SAME = 50


async def race_submits(url: str, rounds: int, seed: int) -> RaceResult:
    """Fifty at once over two replicas and two doors: one job, and every answer is the same."""
    result = RaceResult(f"{SAME} equal submissions at once")
    began = time.perf_counter()
    stores = [PostgresStore(url), PostgresStore(url)]
    replicas = []
    for store in stores:
        await store.open()
        replicas.append(_replica(store, seed))
    try:
        for number in range(rounds):
            await _submit_round(number, replicas, result)
        judged = await check_history(stores[0])
        dead_letters = (await PostgresReads(stores[0]).dead_letters(None, 10, None)).total
    finally:
        for store in stores:
            await store.close()
    if len(judged.jobs) != rounds:
        result.faults.append(f"{len(judged.jobs)} jobs came of {rounds} submissions")
    if dead_letters:
        result.faults.append(f"{dead_letters} of the repeats became dead letters")
    result.faults += judged.faults()
    result.seconds = time.perf_counter() - began
    return result


@dataclass(frozen=True, slots=True)
class _ReplicaEntry:
    """One replica's two ways in."""

    http: httpx.AsyncClient
    intake: SubmissionIntake


def _replica(store: PostgresStore, seed: int) -> _ReplicaEntry:
    clock, ids = SystemClock(), RandomIds(random.Random(f"{seed} {id(store)}"))
    settings = LiveSettings(SETTINGS)
    ports = SubmissionPorts(GroupCommit(store).submit, store, clock, ids)
    submissions = Submissions(ports, settings)

    async def readiness() -> Mapping[str, str]:
        return {}

    services = Services(
        store=store,
        reads=PostgresReads(store),
        bound_reads=partial(TenantReads, PostgresReads(store)),
        access=owner_only(clock),
        secrets=TenantSecrets(PostgresSecrets(store), None, ids),
        submissions=submissions,
        settings=settings,
        clock=clock,
        ids=ids,
        metrics=Metrics(),
        readiness=readiness,
    )
    transport = httpx.ASGITransport(create_app(services))
    topic = SubmitTopic(NAMES.submit_topic, TopicBinding(NAMES.submit_topic, DEFAULT_TENANT))
    bus = IntakePorts(BenchBus(), ports.write, clock)
    intake = SubmissionIntake(bus, NAMES, submissions, topic)
    return _ReplicaEntry(
        httpx.AsyncClient(transport=transport, base_url="http://zen", headers=bearer(OWNER)), intake
    )


async def _submit_round(number: int, doors: Sequence[_ReplicaEntry], result: RaceResult) -> None:
    """Known by an id of its own, or by an idempotency key, in turns."""
    by_key = number % 2 == 1
    submission = b'{"command": ["true"], "gpu_type": "l4"' + (
        b"}" if by_key else b', "job_id": "same-%d"}' % number
    )
    key = f"key-{number}"

    async def rest(door: _ReplicaEntry) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"} | (
            {"Idempotency-Key": key} if by_key else {}
        )
        answer = await door.http.post("/api/v1/jobs", content=submission, headers=headers)
        return answer.status_code, answer.content

    async def message(door: _ReplicaEntry, n: int) -> None:
        name = f"{number}-{n}"
        attributes = {"idempotency_key": key} if by_key else {}
        await door.intake.accept(InMessage(name, name, SystemClock().now(), submission, attributes))

    half = SAME // 2
    answers, _ = await asyncio.gather(
        asyncio.gather(*(rest(doors[n % 2]) for n in range(half))),
        asyncio.gather(*(message(doors[n % 2], n) for n in range(half))),
    )
    distinct = set(answers)
    if len(distinct) != 1 or answers[0][0] != 201:
        result.faults.append(f"round {number}: {len(distinct)} different answers: {distinct}")
    result.races += 1
    result.outcomes["equal answers"] += len(distinct) == 1
