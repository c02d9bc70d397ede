"""What a job says of itself in job-meta.json, on v1 routes."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.job import Job, JobEvent, JobStatus
from scheduler.api import job_meta
from scheduler.api.job_meta import JobMetas, placed, told
from stores.artifacts import META_BYTES_MAX, META_FILE, ArtifactPath
from stores.local import LocalStore
from tests.builders import live
from tests.scheduler.api.fakes import CLUSTERS, TO_RUNNING, House

V1 = tuple(replace(spec, worker="v1") if spec.name == "1xl4" else spec for spec in CLUSTERS)
META = {"job_logger": [{"operation": "step", "data": {"step_num": 3, "step_len": 9}}]}


async def artifacts_of(house: House) -> Any:
    async with house.client() as client:
        body = {"user_id": "ada", "job_ids": ["a"]}
        answer = await client.post("/jobs/get_by_user_and_ids", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()[0]["artifacts"]


async def submitted(house: House) -> None:
    body = {"job_id": "a", "user_id": "ada", "workflow": "w", "args": {}, "gpu_type": "l4"}
    async with house.client() as client:
        assert (await client.post("/jobs", json=body)).status_code == 200


def bucket_file(tmp_path: Path, bucket: str, text: str) -> None:
    target = tmp_path / bucket / "ada" / "a" / META_FILE
    target.parent.mkdir(parents=True)
    target.write_text(text)


async def test_v1_workers_store_it_in_the_bucket_of_their_region(tmp_path: Path) -> None:
    """Of a running job: the file under <user>/<job> in the bucket of its continent."""
    url = f"file://{tmp_path}/lum-dev-pipeline-zen-jobs-{{multi_region}}"
    house = House(files=LocalStore(tmp_path / "own"), clusters=V1, results_url=url)
    await submitted(house)
    bucket_file(tmp_path, "lum-dev-pipeline-zen-jobs-us", json.dumps(META))
    assert await artifacts_of(house) == {}, "it has not begun: what is there is another job's"
    house.move("a", *TO_RUNNING)
    assert await artifacts_of(house) == META


async def test_our_workers_store_it_while_the_job_runs(tmp_path: Path) -> None:
    """What the last attempt said stands until the next one says something."""
    store = LocalStore(tmp_path)
    house = House(files=store)
    await submitted(house)
    job = house.move("a", *TO_RUNNING)
    path = ArtifactPath(job.spec.tenant_id, "ada", "a", 1)
    await store.put(path.live_meta, json.dumps(META).encode())
    assert await artifacts_of(house) == META
    house.move("a", JobEvent.VM_LOST, *TO_RUNNING)
    assert await artifacts_of(house) == META
    later = {**META, "weights": []}
    await store.put(replace(path, attempt=2).file(META_FILE), json.dumps(later).encode())
    house.move("a", JobEvent.EXITED_OK)
    assert await artifacts_of(house) == later


async def test_the_end_is_read_at_once(tmp_path: Path) -> None:
    """Who asks right after the end gets the whole file, not what was read a moment before."""
    store = LocalStore(tmp_path)
    metas, ended = JobMetas(store, live()), ended_job()
    running = replace(ended, status=JobStatus.RUNNING)
    path = ArtifactPath(ended.spec.tenant_id, ended.spec.user_id, ended.spec.job_id, 1)
    await store.put(path.live_meta, b"{}")
    assert await metas.of(running, None, v1=False) == {}
    await store.put(path.file(META_FILE), json.dumps(META).encode())
    assert await metas.of(ended, None, v1=False) == META


@pytest.mark.parametrize(
    ("text", "words"), [("{", "cannot be read"), ("[]", "cannot be read"), ("long", "8 MiB")]
)
async def test_what_cannot_be_used_is_said(tmp_path: Path, text: str, words: str) -> None:
    """And hides no job."""
    house = House(
        files=LocalStore(tmp_path / "own"), clusters=V1, results_url=f"file://{tmp_path}/b"
    )
    await submitted(house)
    house.move("a", *TO_RUNNING)
    bucket_file(tmp_path, "b", text if text != "long" else " " * META_BYTES_MAX)
    assert words in (await artifacts_of(house))["unavailable"]


class Counted(LocalStore):
    """Counts what is read."""

    reads = 0

    async def get(self, key: str, offset: int, limit: int) -> bytes | None:
        self.reads += 1
        return await super().get(key, offset, limit)


async def test_ended_jobs_are_read_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients ask for the same jobs again and again; an upload may come a while after the end."""
    store = Counted(tmp_path)
    metas, job = JobMetas(store, live()), ended_job()
    path = ArtifactPath(job.spec.tenant_id, job.spec.user_id, job.spec.job_id, 1)
    assert await metas.of(job, None, v1=False) == {}
    monkeypatch.setattr(job_meta, "FRESH_S", 0.0)
    await store.put(path.file(META_FILE), json.dumps(META).encode())
    assert await metas.of(job, None, v1=False) == META
    monkeypatch.setattr(job_meta, "SETTLED_S", -1.0)
    before = store.reads
    assert await metas.of(job, None, v1=False) == META
    assert store.reads == before


async def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least asked for is forgotten, and read again; jobs that have said nothing count too."""
    monkeypatch.setattr(job_meta, "REMEMBERED_BYTES", 3 * job_meta.ENTRY_BYTES)
    assert sys.getsizeof(job_meta._Known({}, 0, 0.0, None)) + 64 <= job_meta.ENTRY_BYTES
    store = Counted(tmp_path)
    metas = JobMetas(store, live())
    for number in (*range(5), 0):
        await metas.of(replace(ended_job(), uid=f"u-{number}"), None, v1=False)
    assert store.reads == 6 * 2


class Silent(LocalStore):
    """Does not answer."""

    async def get(self, key: str, offset: int, limit: int) -> bytes | None:
        await asyncio.Event().wait()
        return None


async def test_a_store_that_is_silent_hides_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer says so instead of what the job says."""
    monkeypatch.setattr(job_meta, "ANSWER_S", 0.0)
    found = await told(JobMetas(Silent(tmp_path), live()), ended_job(), None, v1=False)
    assert found == {"unavailable": "the store did not answer within 0 s"}


def ended_job() -> Job:
    from tests.builders import job  # noqa: PLC0415  # one name for two things

    return job(1, *TO_RUNNING, JobEvent.EXITED_OK)


@pytest.mark.parametrize(
    ("region", "bucket"),
    [
        ("us-central1", "gs://jobs-us"),
        ("europe-west4", "gs://jobs-europe"),
        ("asia-southeast1", "gs://jobs-asia"),
        ("me-west1", "gs://jobs-me-west1"),
    ],
)
def test_buckets_are_called_by_continent(region: str, bucket: str) -> None:
    """But for the Middle East, which has no multi-region."""
    assert placed("gs://jobs-{multi_region}", region) == bucket
    assert placed("gs://jobs-{region}", region) == f"gs://jobs-{region}"
