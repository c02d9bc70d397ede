"""When waiting jobs start, as callers of the API read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx

from core.changes import PendingReason, PutForecast
from core.errors import StoreDown
from core.forecast import Forecast, JobForecast, Pace, Record, Told
from scheduler.api.etas import FRESH_S, KnownForecasts
from tests.scheduler.api.fakes import NOW, TO_RUNNING, House

JOBS = "/api/v1/jobs"
LATER = NOW + timedelta(seconds=60)
TOLD = Told(LATER, LATER + timedelta(minutes=5), LATER + timedelta(minutes=20))


async def submitted(house: House, client: httpx.AsyncClient, job_id: str = "mine") -> str:
    """Its uid."""
    request = {"command": ["true"], "job_id": job_id}
    assert (await client.post(JOBS, json=request)).status_code == 201
    return next(job.uid for job in house.jobs.values() if job.spec.job_id == job_id)


async def eta(client: httpx.AsyncClient, job_id: str = "mine") -> Any:
    return (await client.get(f"{JOBS}/{job_id}")).json()["eta"]


def publish(house: House, *paces: Pace, **jobs: JobForecast) -> None:
    """The leader says something new, and this replica's memory of it is old."""
    house.write(PutForecast(Forecast("1xl4", LATER, jobs, paces, Record(10, 6, 9))))
    house.clock.at += timedelta(seconds=FRESH_S)


async def test_a_waiting_job_is_told_when_it_starts() -> None:
    """Both moments, when they were worked out and from what; the same alone and in a list."""
    house = House()
    async with house.client() as client:
        uid = await submitted(house, client)
        first = await eta(client)
        assert first["p50"] is None
        assert first["based_on"] == "estimate pending"
        publish(house, **{uid: JobForecast(TOLD, "past runs", 30.04, 45.0, "9 runs")})
        assert await eta(client) == {
            "p50": "2026-01-31T12:06:00.000Z",
            "p90": "2026-01-31T12:21:00.000Z",
            "computed_at": "2026-01-31T12:01:00.000Z",
            "based_on": "past runs",
            "run_p50_s": 30.0,
            "run_p90_s": 45.0,
            "run_based_on": "9 runs",
        }
        (listed,) = (await client.get(JOBS)).json()["jobs"]
        assert listed["eta"] == await eta(client)


async def test_one_that_runs_has_no_eta() -> None:
    """It has started."""
    house = House()
    async with house.client() as client:
        uid = await submitted(house, client)
        publish(house, **{uid: JobForecast(TOLD, "past runs")})
        house.move("mine", *TO_RUNNING)
        assert await eta(client) is None


async def test_no_estimate_says_why() -> None:
    """In the forecast's words, or in those of why it waits; behind a dependency in that one's."""
    house = House()
    async with house.client() as client:
        uid = await submitted(house, client)
        publish(house, **{uid: JobForecast(None, "us-west1 stockout, next try 14:05:00 UTC")})
        words = (await eta(client))["based_on"]
        assert words == "no estimate: us-west1 stockout, next try 14:05:00 UTC"
        house.write(PendingReason(uid, "quota of tenant a: asks for 2 GPUs"))
        publish(house, **{uid: JobForecast(None, "")})
        assert (await eta(client))["based_on"] == "no estimate: quota of tenant a: asks for 2 GPUs"
        job = house.jobs["0", "mine"]
        spec = replace(job.spec, after=("prepare:ok",))
        house.tables.set_job(replace(job, spec=spec, blocked=uid))
        assert (await eta(client))["based_on"].startswith("no estimate: waits for")


async def test_far_back_is_told_by_the_pace_of_those_before() -> None:
    """A job that the leader did not play gets on as fast as its tenant's before it; one that came
    after the forecast waits for the next."""
    house = House()
    async with house.client() as client:
        await submitted(house, client)
        house.queue_before(599, house.jobs["0", "mine"].spec)
        publish(house, Pace("default", 1, 300, 100.0, 200.0))
        far = await eta(client)
        assert (far["p50"], far["p90"]) == ("2026-01-31T12:04:20.000Z", "2026-01-31T12:07:40.000Z")
        assert far["based_on"] == "far back: at the pace of the 300 before it"
        publish(house, Pace("stranger", 1, 300, 100.0, 200.0))
        assert (await eta(client))["based_on"].startswith("no estimate: ")


async def test_a_gang_has_one_eta() -> None:
    """All members are told what the first one is."""
    house = House()
    async with house.client() as client:
        request = {"command": ["true"], "job_id": "gang", "replicas": 2}
        assert (await client.post(JOBS, json=request)).status_code == 201
        uids = {job.spec.job_id: job.uid for job in house.jobs.values()}
        publish(house, **{uids["gang"]: JobForecast(TOLD, "past runs")})
        one = await client.get(f"{JOBS}/gang.1")
        assert one.json()["eta"]["p50"] == "2026-01-31T12:06:00.000Z"


async def test_how_true_they_were_is_part_of_the_status() -> None:
    """Over all clusters."""
    house = House()
    publish(house)
    async with house.client() as client:
        status = (await client.get("/api/v1/status")).json()
    assert status["etas"] == {"told": 10, "p50_held": 6, "p90_held": 9}


async def test_the_database_may_be_away() -> None:
    """What was read last is told on, and asked for again a moment later; a caller that asks often
    does not ask the database as often."""
    house, asked = House(), 0

    async def read() -> Sequence[Forecast]:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise StoreDown("away")
        return [Forecast("1xl4", NOW)]

    known = KnownForecasts(read, house.clock)
    assert list(await known.now()) == list(await known.now()) == ["1xl4"]
    house.clock.at += timedelta(seconds=FRESH_S)
    assert list(await known.now()) == ["1xl4"]
    house.clock.at += timedelta(seconds=FRESH_S)
    assert list(await known.now()) == ["1xl4"]
    assert asked == 3
