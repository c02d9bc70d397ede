"""What forecasts are made of, and where they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from core.changes import JobMove, PutForecast
from core.forecast import Forecast, JobForecast, Pace, Record, Told, run_of
from core.job import Job, JobEvent
from core.ports import Store
from core.queueing import HeadsOf, Live, QueueRule
from tests.db.builders import Maker, at, put, put_placed, put_ready_vm, step, submitted

E = JobEvent


def _ask(wanted: Sequence[HeadsOf], _: Live) -> Sequence[HeadsOf]:
    return wanted


async def ended(
    store: Store, maker: Maker, job_id: str, event: E, now: datetime, **facts: object
) -> Job:
    """A job that ran for 100 s until `now`."""
    job = maker.job(job_id, now=now - timedelta(seconds=200), **facts)  # type: ignore[arg-type]
    await put(store, submitted(job))
    began = now - timedelta(seconds=100)
    job, _ = await put_placed(store, maker, job, await put_ready_vm(store, maker), began)
    started = step(job, E.STARTED, began)
    await put(store, started)
    code = {E.EXITED_OK: 0, E.EXITED_ERROR: 3}.get(event)
    end = step(started.after, event, now, exit_code=code)
    await put(store, end)
    return end.after


class Forecasts:
    async def test_runs_are_those_that_ended_by_themselves(
        self, store: Store, maker: Maker
    ) -> None:
        """Ended well or badly, or at the limit of their time: all held a VM for as long as such
        jobs do. One that was cancelled before it ran, or stopped, says nothing."""
        now = (await store.snapshot(0)).now
        facts = {"tenant_id": "a", "name": "train-7", "gpu_count": 2, "workflow": "w"}
        good = await ended(store, maker, "good", E.EXITED_OK, now - timedelta(30), **facts)
        bad = await ended(store, maker, "bad", E.EXITED_ERROR, now - timedelta(seconds=50))
        late = await ended(store, maker, "late", E.MAX_RUNTIME, now - timedelta(seconds=40))
        over = step(late, E.STOPPED, now - timedelta(seconds=30))
        stopped = await ended(store, maker, "stopped", E.STOP_ASKED, now - timedelta(seconds=40))
        waits = maker.job("waits", now=now - timedelta(seconds=40))
        await put(store, over, submitted(waits))
        await put(store, step(stopped, E.STOPPED, now - timedelta(seconds=20)))
        await put(store, step(waits, E.STOP_ASKED, now - timedelta(seconds=10)))
        found = await store.runs(now - timedelta(days=60), 100)
        assert [run.uid for run in found] == [late.uid, bad.uid, good.uid]
        assert list(found) == [run_of(over.after), run_of(bad), run_of(good)]
        mine = found[-1]
        assert (mine.name, mine.workflow, mine.command) == ("train-7", "w", ("true",))
        assert (mine.tenant_id, mine.cluster, mine.gpus, mine.ran_s) == ("a", "1xl4", 2, 100.0)

    async def test_runs_are_bounded(self, store: Store, maker: Maker) -> None:
        """Only what ended since, and of that the newest ends, whatever they were."""
        now = (await store.snapshot(0)).now
        for age in (5000, 300, 200, 100):
            await ended(store, maker, f"j{age}", E.EXITED_OK, now - timedelta(seconds=age))
        since = now - timedelta(seconds=1000)
        assert [r.ended_at for r in await store.runs(since, 10)] == [
            now - timedelta(seconds=age) for age in (100, 200, 300)
        ]
        assert len(await store.runs(since, 2)) == 2
        assert list(await store.runs(now, 10)) == []

    async def test_heads_are_those_of_the_view(self, store: Store, maker: Maker) -> None:
        """The same jobs in the same order as the loop would see, and no others."""
        jobs = [
            maker.job(f"{tenant}{n}", now=at(n), tenant_id=tenant, queue_timeout_s=1e9)
            for n in range(3)
            for tenant in ("a", "b")
        ]
        other = maker.job("x", cluster="8xh100", queue_timeout_s=1e9)
        await put(store, *map(submitted, (*jobs, other)))
        for rule in QueueRule:
            wanted = [HeadsOf("1xl4", 4, rule, ("b", "a"))]
            seen = (await store.snapshot(100, partial(_ask, wanted))).jobs
            assert list(await store.heads(wanted, 100)) == list(seen)
            assert len(seen) == 4
        one = step(jobs[0], E.STOP_ASKED, at(9))
        await put(store, one)
        uids = {job.uid for job in await store.heads([HeadsOf("1xl4", 9)], 9)}
        assert uids == {job.uid for job in jobs[1:]}
        assert list(await store.heads([], 9)) == []

    async def test_who_waits_for_the_next_attempt_is_no_head(
        self, store: Store, maker: Maker
    ) -> None:
        """Until its moment it hides nobody behind it; who forecasts may ask for it, and what its
        checkpoints hold is stored with it."""
        soon = (await store.snapshot(0)).now + timedelta(seconds=3600)
        jobs = [maker.job(f"j{n}", now=at(n), queue_timeout_s=1e9) for n in range(3)]
        await put(store, *map(submitted, jobs))
        failed = replace(jobs[0], version=2, retry_at=soon, saved_s=60.0, saved_share=0.25)
        over = replace(jobs[1], version=2, retry_at=at(0))
        await put(store, JobMove(jobs[0], failed, ()), JobMove(jobs[1], over, ()))
        for rule in QueueRule:
            first = HeadsOf("1xl4", 1, rule, ("default",))
            assert list((await store.snapshot(100, partial(_ask, [first]))).jobs) == [over]
            (found,) = await store.heads([replace(first, backing_off=True)], 100)
            assert found == failed

    async def test_the_last_forecast_of_a_cluster_is_kept(self, store: Store) -> None:
        """All of it comes back as it was; a new one replaces the old one."""
        told = Told(at(0), at(60), at(90.5))
        said = {
            "u1": JobForecast(told, "runs", 10.0, 20.5, "7 runs", told),
            "u2": JobForecast(None, "no estimate: quota"),
        }
        pace = Pace("a", 1, 7, 60.0, 90.5)
        first = Forecast("1xl4", at(0), said, (pace,), Record(4, 2, 3, 1.5, 0.75))
        other = Forecast("1xh100", at(1))
        await put(store, PutForecast(first))
        await put(store, PutForecast(other))
        assert list(await store.forecasts()) == [other, first]
        await put(store, PutForecast(Forecast("1xl4", at(5))))
        assert list(await store.forecasts()) == [other, Forecast("1xl4", at(5))]
