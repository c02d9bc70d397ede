"""luminolabs/lumino-api: its scheduler client and its job status updater, against the stack.

The service's own functions are called as its routes and its background task call them, with a
PostgreSQL of its own. On the VMs a small program stands for the workflow: it trains nothing and
writes job-meta.json as pipeline-zen's workflows do.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cli.paths import ROOT
from tests.clients.programs.frame import ClientCheck, ClientProgram, ClientSetup, last_words

PACKAGES_FILE = "requirements.txt"
DRIVE_S = 280.0

WORKFLOW = '''"""The workflow on the VM: num_epochs steps of a second each, then weights."""
import json, os, pathlib, sys, time

words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
steps, rows = int(words["--num_epochs"]), []
target = pathlib.Path(os.environ["ZEN_OUTPUT_DIR"], "job-meta.json")

def log(operation, **data):
    rows.append({"operation": operation, "data": data})
    target.write_text(json.dumps({"job_logger": rows}))

for step in range(1, steps + 1):
    log("step", step_num=step, step_len=steps, epoch_num=1, epoch_len=1)
    time.sleep(1)
log("weights", base_url="https://storage.googleapis.com/bucket/user/job",
    weight_files=["epoch_0/model.safetensors"], other_files=["epoch_0/config.json"])
'''

DRIVER = '''"""Calls the service's own functions; one line of JSON for each thing that was tried."""
import asyncio, json, uuid

from app.core.config_manager import config
from app.core.constants import BaseModelStatus, ComputeProvider, FineTuningJobType
from app.core.database import AsyncSessionLocal, Base, engine
from app.core.exceptions import FineTuningJobCancellationError, FineTuningJobCreationError
from app.core.scheduler_client import fetch_job_details, start_fine_tuning_job, stop_fine_tuning_job
import app.main  # all tables
from app.models.base_model import BaseModel
from app.models.dataset import Dataset
from app.models.fine_tuned_model import FineTunedModel
from app.models.fine_tuning_job import FineTuningJob
from app.models.user import User
from app.schemas.fine_tuning import FineTuningJobCreate
from app.services.fine_tuning import cancel_fine_tuning_job, create_fine_tuning_job
from app.tasks.job_status_updater import update_job_statuses
from sqlalchemy import select

def told(name, good, words=""):
    print("CHECK " + json.dumps([name, bool(good), str(words)]), flush=True)

async def rows():
    cluster = {"lora": {"num_gpus": 1, "gpu_type": "a100-40gb"},
               "full": {"num_gpus": 3, "gpu_type": "abacus"}}
    async with AsyncSessionLocal() as db:
        user = User(id=uuid.uuid4(), name="Ada", email="ada@example.com", auth0_user_id="a",
                    email_verified=True, credits_balance=100.0)
        db.add(user)
        await db.flush()
        db.add(BaseModel(id=uuid.uuid4(), name="llm_dummy", hf_url="-",
                         status=BaseModelStatus.ACTIVE, cluster_config=cluster))
        db.add(Dataset(id=uuid.uuid4(), user_id=user.id, name="set", file_name="set.jsonl",
                       file_size=1))
        await db.commit()
        return user

async def create(user, name, epochs, kind=FineTuningJobType.LORA, provider=ComputeProvider.GCP):
    asked = FineTuningJobCreate(base_model_name="llm_dummy", dataset_name="set", name=name,
                                type=kind, provider=provider, parameters={"num_epochs": epochs})
    async with AsyncSessionLocal() as db:
        return await create_fine_tuning_job(db, user, asked)

async def job(name):
    async with AsyncSessionLocal() as db:
        found = await db.execute(select(FineTuningJob).where(FineTuningJob.name == name))
        return found.scalar_one()

async def until(name, *statuses, most=150):
    """The statuses and steps that the updater brought, until one of these."""
    seen = []
    for _ in range(most):
        await update_job_statuses()
        now = await job(name)
        mark = (now.status.value, now.current_step)
        seen += [] if seen and seen[-1] == mark else [mark]
        if now.status.value in statuses:
            break
        await asyncio.sleep(1)
    return seen

async def completes(user):
    answer = await create(user, "good", 25)
    told("start_fine_tuning_job", answer.status.value == "NEW", answer.status)
    seen = await until("good", "COMPLETED", "FAILED", "STOPPED")
    told("update_job_statuses: it completes", seen[-1][0] == "COMPLETED", seen)
    told("update_job_statuses: progress while it runs",
         any(status == "RUNNING" and step for status, step in seen), seen)
    now = await job("good")
    steps = (now.current_step, now.total_steps, now.current_epoch, now.total_epochs)
    told("update_job_statuses: steps", steps == (25, 25, 1, 1), steps)
    async with AsyncSessionLocal() as db:
        models = (await db.execute(select(FineTunedModel))).scalars().all()
    files = [model.artifacts["weight_files"] for model in models]
    told("update_job_statuses: the model", files == [["epoch_0/model.safetensors"]], files)
    async with AsyncSessionLocal() as db:
        try:
            await start_fine_tuning_job(db, now.id, user.id)
            told("the same id again is refused", False)
        except FineTuningJobCreationError as error:
            words = str(error.detail)
            told("the same id again is refused", "already exists" in words, words)

async def stops(user):
    await create(user, "long", 600)
    seen = await until("long", "RUNNING", "FAILED", "COMPLETED")
    async with AsyncSessionLocal() as db:
        answer = await cancel_fine_tuning_job(db, user.id, "long")
    told("stop_fine_tuning_job", answer.status.value == "STOPPING", answer.status)
    seen = await until("long", "STOPPED", "FAILED", "COMPLETED")
    told("update_job_statuses: it is stopped", seen[-1][0] == "STOPPED", seen)
    try:
        await stop_fine_tuning_job(uuid.uuid4(), user.id)
        told("stop of a job that is not there", False)
    except FineTuningJobCancellationError as error:
        told("stop of a job that is not there", "not found" in str(error.detail), error.detail)

async def others(user):
    await create(user, "protocol", 2, provider=ComputeProvider.LUM)
    seen = await until("protocol", "COMPLETED", "FAILED", "STOPPED")
    told("POST /jobs/lum: it completes", seen[-1][0] == "COMPLETED", seen)
    try:
        await create(user, "nowhere", 1, kind=FineTuningJobType.FULL)
        told("a cluster that does not exist is refused", False)
    except FineTuningJobCreationError as error:
        words = str(error.detail)
        told("a cluster that does not exist is refused", "num_gpus" in words, words)
    found = await fetch_job_details(user.id, [uuid.uuid4()])
    told("fetch_job_details of a job that is not there", found == [], found)

async def main():
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    user = await rows()
    for part in (completes, stops, others):
        try:
            await part(user)
        except Exception as error:
            told(part.__name__, False, repr(error))

asyncio.run(main())
'''


def _environ(_: Path, scratch: Path) -> Mapping[str, str]:
    """The workflow is a program on the PATH of the VMs."""
    programs = scratch / "bin"
    programs.mkdir()
    workflow = scratch / "workflow.py"
    workflow.write_text(WORKFLOW, encoding="utf-8")
    program = programs / "torchtunewrapper"
    words = f"{shlex.quote(sys.executable)} -P {shlex.quote(str(workflow))}"
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


@contextmanager
def _database(scratch: Path) -> Iterator[Mapping[str, str]]:
    """A PostgreSQL of its own, in the service's variables."""
    argv = (
        sys.executable,
        "-P",
        "-m",
        "db.embedded.server",
        "run",
        "--data-dir",
        str(scratch / "pg"),
    )
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None, "asked for"
            url = urlsplit(json.loads(server.stdout.readline())["url"])
            where = parse_qs(url.query)["host"][0]
            yield {
                "CAPI_DB_USER": url.username or "zen",
                "CAPI_DB_PASS": "none",
                "CAPI_DB_HOST": "",
                "CAPI_DB_PORT": "5432",
                "CAPI_DB_NAME": f"{url.path.strip('/')}?host={where}",
            }
        finally:
            server.terminate()


def checks(setup: ClientSetup) -> Iterator[ClientCheck]:
    """What the driver tells."""
    python = setup.python("-r", str(setup.checkout / PACKAGES_FILE))
    driver = setup.scratch / "driver.py"
    driver.write_text(DRIVER, encoding="utf-8")
    settings = {
        "CAPI_ENV": "local",
        "CAPI_RUN_WITH_SCHEDULER": "true",
        "CAPI_SCHEDULER_ZEN_URL": setup.api,
        "CAPI_APP_SECRET_KEY": "none",
        "PYTHONPATH": str(setup.checkout / "src"),
    }
    with _database(setup.scratch) as database:
        environ = {**settings, **database}
        done = setup.call(python, str(driver), environ=environ, timeout_s=DRIVE_S)
    told = [json.loads(line[6:]) for line in done.output.splitlines() if line.startswith("CHECK ")]
    for name, good, words in told:
        yield ClientCheck(name, "passed" if good else "failed", "" if good else last_words(words))
    if done.code or not told:
        yield ClientCheck(
            "all of it", "failed", f"exit code {done.code}: {last_words(done.output)}"
        )


PROGRAM = ClientProgram(
    name="luminolabs/lumino-api",
    marks=("src/app/core/scheduler_client.py", "src/app/tasks/job_status_updater.py"),
    checks=checks,
    changes={"clusters": {"1xa100-40gb": {"vm_min": 1}}},
    environ=_environ,
    differences=(
        "Jobs of the provider LUM are run by our clusters: there is no chain, `lum` is empty.",
    ),
)
