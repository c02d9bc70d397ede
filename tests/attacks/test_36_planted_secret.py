"""Somebody who reads the database, the bus, logs and the API looks for the values of secrets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
import yaml
from psycopg import sql

from tests.e2e.stack import Stack, publish, small_config, stack, wait_for

pytestmark = pytest.mark.slow

STORED, MANAGED = "planted-stored-8c1f0e77a2", "planted-managed-51d9be4403"
CONTROL = "planted-control-0b6f92c1d8"
"""In the environment of a job: the search finds it, so it would find the others."""
PROJECT = "team-secrets"
SECRETS = {"STORED": "zen://stored", "MANAGED": f"sm://{PROJECT}/managed/versions/1"}
SCRIPT = """
for v in "$STORED" "$MANAGED"; do printf %s "$v" | sha256sum | cut -c1-16; done
exit 3
"""
TOKEN = b"ya29.pretend-"
ACCOUNT = "jobs@team.iam.gserviceaccount.com"
ASK = """
import http.client, os, pathlib, sys, time, urllib.request
host = sys.argv[1] if len(sys.argv) > 1 else os.environ["GCE_METADATA_HOST"]
url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/"
def ask(path):
    request = urllib.request.Request(url + path, headers={"Metadata-Flavor": "Google"})
    try:
        return urllib.request.urlopen(request, timeout=30).read().decode()
    except (OSError, http.client.HTTPException):
        return "closed"
print(host, ask("email"), ask("token")[:30], flush=True)
while len(sys.argv) == 1 and not pathlib.Path("go").exists():
    time.sleep(0.1)
"""
SAVES = """
if [ -n "$ZEN_RESUME_FROM" ]; then cat "$ZEN_RESUME_FROM/deep/model"; exit 0; fi
mkdir "$ZEN_CHECKPOINT_DIR/deep" && echo seven > "$ZEN_CHECKPOINT_DIR/deep/model"
echo '{"step": 7, "checkpoint": true}' >> "$ZEN_STATUS_FILE"
sleep 1000
"""
READ = (
    *("jobs", "dead-letters", "audit", "secrets", "config", "alerts", "vms", "events", "status"),
    *("whoami", "tenants", "config/versions", "keys"),
)


def with_project(target: Path) -> Path:
    """The tenant may use the secrets of one project."""
    words = yaml.safe_load(small_config(target).read_text())
    words["tenants"] = {"default": {"secret_projects": [PROJECT], "google_account": ACCOUNT}}
    target.write_text(yaml.safe_dump(words))
    return target


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack on which both secrets were set, in both places. Its store is a bucket, which VMs
    reach by tokens."""
    with stack(config=with_project, changes={"store_url": "gs://planted/jobs"}) as up:
        file = tmp_path_factory.mktemp("elsewhere") / "value"
        file.write_text(STORED)
        up.zen("secrets", "set", "stored", "--file", str(file))
        _plant(up.run["sim"])
        yield up


def _plant(cloud: str) -> None:
    url = f"{cloud}/v1/projects/{PROJECT}/secrets"
    assert httpx.post(f"{url}?secretId=managed").status_code == 200
    body = {"payload": {"data": base64.b64encode(MANAGED.encode()).decode()}}
    assert httpx.post(f"{url}/managed:addVersion", json=body).status_code == 200


def test_a_job_gets_its_secrets_and_nobody_else_finds_them(planted: Stack) -> None:
    """Through submission, a failed attempt, a retry, dead letters and a deleted secret."""
    job = planted.submit(
        "sh",
        *("-c", SCRIPT),
        job_id="trained",
        secrets=SECRETS,
        environment={"CONTROL": CONTROL},
        retries=1,
    )
    ended = planted.wait(job)
    assert (ended["status"], ended["secrets"]) == ("FAILED", SECRETS)
    hashes = [hashlib.sha256(value.encode()).hexdigest()[:16] for value in (STORED, MANAGED)]
    assert planted.log(job).split()[:2] == hashes
    _dead_letter(planted)
    gate = planted.submit("sleep", "1000", job_id="gate")
    after = planted.submit("true", job_id="late", secrets=SECRETS, after=[f"{gate}:any"])
    planted.zen("secrets", "delete", "stored")
    planted.zen("stop", gate)
    late = planted.wait(after)
    assert late["reason"].startswith("secrets.STORED: tenant default has no secret zen://stored")
    answers = _answers(planted, job)
    tables = _tables(planted)
    assert CONTROL.encode() in answers
    assert CONTROL.encode() in tables
    assert b"zen://stored" in tables
    assert _found(answers) == []
    assert _found(tables) == []
    files = [file for file in planted.home.rglob("*") if file.is_file()]
    names = {part for file in files for part in file.relative_to(planted.home).parts}
    assert {"bus.sqlite3", "pg", "logs"} <= names
    hits = {str(file): _found(file.read_bytes()) for file in files if file.exists()}
    assert {file: found for file, found in hits.items() if found} == {}
    minted = httpx.get(f"{planted.run['sim']}/sim/v1/tokens").json()["minted"]
    prefix = f"projects/_/buckets/planted/objects/jobs/logs/default/0/{job}"
    assert {f"store {prefix}/1/", f"store {prefix}/2/"} <= set(minted)
    assert TOKEN not in answers + tables
    assert [file for file in files if file.exists() and TOKEN in file.read_bytes()] == []


def test_a_job_outlives_its_tokens(planted: Stack) -> None:
    """All tokens end while it runs, and another leader gives it new ones."""
    script = "echo one; while [ ! -e go ]; do sleep 0.1; done; echo two; echo x >$ZEN_OUTPUT_DIR/f"
    job = planted.submit("sh", "-c", script, job_id="long")
    wait_for("its first words", lambda: "one" in planted.log(job) or None)
    term = planted.get("/status")["term"]
    os.kill(planted.run["processes"]["scheduler"], signal.SIGKILL)
    tokens = f"{planted.run['sim']}/sim/v1/tokens"
    before = sum(f"/{job}/1/" in words for words in httpx.get(tokens).json()["minted"])
    assert httpx.post(tokens, json={"end": True}).is_success
    planted.wait_for_term_after(term)

    def renewed() -> bool | None:
        minted = httpx.get(tokens).json()["minted"]
        return sum(f"/{job}/1/" in words for words in minted) > before or None

    wait_for("new tokens", renewed, 60)
    (work,) = (at for at in planted.home.rglob("jobs/*/work") if at.is_dir())
    (work / "go").touch()
    assert planted.wait_through_restart(job)["status"] == "SUCCEEDED"
    assert planted.log(job).split() == ["one", "two"]


def test_checkpoints_in_a_bucket_outlive_their_vm(planted: Stack) -> None:
    """Each attempt reaches those of its job by its own token. A step counts once it is stored."""
    job = planted.submit("sh", "-c", SAVES, job_id="saves")
    wait_for("a safe step", lambda: planted.job(job)["checkpoint_step"])
    planted.zen("sim", "crash", planted.job(job)["vm"]["name"])
    ended = planted.wait(job, seconds=90)
    assert (ended["status"], ended["attempt"]) == ("SUCCEEDED", 2)
    assert planted.log(job).split() == ["seven"]


def test_a_job_that_asks_is_its_tenants_account(planted: Stack) -> None:
    """Its endpoint answers it, and no other job; a tenant without an account is refused."""
    body = {"command": ["true"], "tenant_id": "other", "google_token": True}
    refused = httpx.post(f"{planted.api}/api/v1/jobs", json=body, timeout=10)
    assert (refused.status_code, refused.json()["faults"][0]["field"]) == (422, "google_token")
    assert "tenants.other.google_account" in refused.text
    job = planted.submit("python3", "-c", ASK, job_id="asks", google_token=True)
    said = wait_for("its answer", lambda: planted.log(job).split() or None)
    host, email, token = said[0], said[1], " ".join(said[2:])
    assert (email, token) == (ACCOUNT, '{"access_token": "ya29.pretend')
    other = planted.submit("python3", "-c", ASK, host, job_id="another")
    assert planted.wait(other)["status"] == "SUCCEEDED"
    if os.geteuid() == 0:  # else all jobs are one user
        assert planted.log(other).split() == [host, "closed", "closed"]
    (work,) = (at for at in planted.home.rglob("jobs/*/work") if at.is_dir())
    (work / "go").touch()
    assert planted.wait(job)["status"] == "SUCCEEDED"


def test_a_project_that_is_not_the_tenants_is_refused_at_the_door(planted: Stack) -> None:
    """With the key that an operator would have to set."""
    body = {"command": ["true"], "secrets": {"A": "sm://other-project/managed"}}
    refused = httpx.post(f"{planted.api}/api/v1/jobs", json=body, timeout=10)
    assert refused.status_code == 422
    assert "tenants.default.secret_projects" in refused.text


def test_a_value_in_place_of_a_reference_is_not_repeated(planted: Stack) -> None:
    body = {"command": ["true"], "secrets": {"A": STORED}}
    refused = httpx.post(f"{planted.api}/api/v1/jobs", json=body, timeout=10)
    assert refused.status_code == 422
    assert STORED not in refused.text


def _dead_letter(up: Stack) -> None:
    """A submission with references that cannot be used."""
    body = {"command": ["true"], "secrets": SECRETS, "nonsense": 1}
    asyncio.run(publish(up, "pipeline-zen-jobs-submit", json.dumps(body).encode()))
    wait_for("its dead letter", lambda: up.get("/dead-letters")["total"] or None)


def _answers(up: Stack, job: str) -> bytes:
    """What the API and the command line say."""
    paths = (*READ, f"jobs/{job}", f"jobs/{job}/events", f"jobs/{job}/attempts")
    urls = (*(f"/api/v1/{path}" for path in paths), "/metrics")
    calls = (("show", job), ("jobs",), ("logs", job), ("dead-letters", "list"), ("secrets",))
    told = [up.zen(*words, check=False).stdout.encode() for words in calls]
    return b"\n".join([*told, *(httpx.get(f"{up.api}{url}", timeout=10).content for url in urls)])


def _tables(up: Stack) -> bytes:
    """All rows of all tables, as COPY writes them."""
    environ = psutil.Process(up.run["processes"]["scheduler"]).environ()
    copied: list[Any] = []
    with psycopg.connect(environ["DATABASE_URL"]) as connection:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        for (name,) in connection.execute(query).fetchall():
            statement = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(name))
            with connection.cursor().copy(statement) as rows:
                copied += rows
    return b"".join(map(bytes, copied))


def _found(data: bytes) -> list[str]:
    """Values that stand there, as they are or in a usual spelling."""
    hits = []
    for value in (STORED, MANAGED):
        raw = value.encode()
        spelt = (raw, raw.hex().encode(), base64.b64encode(raw)[:-4], raw[::-1])
        hits += [value for one in spelt if one in data]
    return hits
