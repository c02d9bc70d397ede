"""Whatever is sent: refused with the field named, or stored and run exactly as it came. Nothing
reaches a shell that did not ask for one, nothing leaves its directory."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from urllib.parse import quote

import pytest

from agent.environment import argv_for, environment_for, places_for
from core.errors import BadInput
from core.job_fields import JobSpec
from core.messages import InMessage, StartJob
from core.names import Names
from core.submission import parse_submission
from core.timers import Timers
from messaging.codec import (
    BadMessage,
    decode_control,
    decode_submission,
    encode_control,
    encode_start_v1,
    encode_stop_v1,
)
from scheduler.submission.other_systems import native_of_definition, native_of_v1
from scheduler.submission.unstorable import refuse_unstorable
from stores.base import LogPath, job_key, quoted
from stores.local import LocalStore
from tests.scheduler.api.fakes import AS_JSON, NOW, House
from tests.scheduler.api.hostile import BOMBS, CORPUS

ROOT = Path("/var/lib/zen/store")
VM_DIR = Path("/var/lib/zen/vm")
V1 = {"job_id": "a", "workflow": "echo", "args": {}, "gpu_type": "l4"}
NATIVE = {"command": ["prog"]}


def accepted(native: dict[str, object]) -> JobSpec | set[str]:
    """What the one table of fields says: a job, or the fields at fault."""
    try:
        refuse_unstorable(native)
        return parse_submission(native, Timers(), "fresh")
    except BadInput as error:
        return {fault.field for fault in error.faults}


def order(spec: JobSpec, lease_id: str = "lease") -> StartJob:
    return StartJob("vm", "nonce", spec, "1xl4", "us-central1", 1, lease_id, (0,))


def test_corpus_is_large_and_the_same_every_time() -> None:
    """At least 500 different values."""
    assert len(set(CORPUS)) == len(CORPUS) >= 500


@pytest.mark.parametrize("field", ["job_id", "user_id", "tenant_id", "group"])
def test_ids_are_harmless_or_refused(field: str) -> None:
    """An id that is taken needs no quoting in any shell and is one part of a path."""
    taken = 0
    for value in CORPUS:
        made = accepted({**NATIVE, field: value})
        if isinstance(made, JobSpec):
            taken += 1
            assert getattr(made, field) == value
            assert shlex.quote(value) == value
            assert "/" not in value
            assert not value.startswith((".", "-"))
        else:
            assert made == {field}, value
    assert 0 < taken < len(CORPUS) / 4


def test_workflow_names_and_names_of_arguments_are_harmless_or_refused() -> None:
    """v1 workers make a path of the one and options of the others."""
    for value in CORPUS:
        made = accepted(native_of_v1({**V1, "workflow": value}))
        if isinstance(made, JobSpec):
            assert made.workflow == value == shlex.quote(value)
            assert "/" not in value
            assert not value.startswith((".", "-"))
        else:
            assert "workflow" in made
        made = accepted(native_of_v1({**V1, "args": {value: "x"}}))
        if isinstance(made, JobSpec):
            assert made.workflow_args == {value: "x"}
            assert value == shlex.quote(value)
            assert not value.startswith("-")
        else:
            assert made - {"command"} == {"workflow_args"}


def test_arguments_are_run_as_they_came() -> None:
    """Words of a command, values of the environment and of workflow arguments arrive byte for byte
    at the worker, over the wire and into its argument list, without a shell."""
    kept = 0
    for value in CORPUS:
        native = native_of_definition(
            {"definition": {"name": "n", "command": ["prog", value], "environment": {"V": value}}}
        )
        made = accepted({**native, "workflow_args": {"v": [value]}, "labels": {"k": value}})
        if not isinstance(made, JobSpec):
            assert "\0" in value or not value.isprintable(), value
            continue
        kept += 1
        message = encode_control(order(made), Names())
        told = decode_control(InMessage("", "", NOW, message.body, message.attributes))
        assert isinstance(told, StartJob)
        assert argv_for(told) == ["prog", value]
        places = places_for(told, VM_DIR, LocalStore(ROOT))
        assert environment_for(told, places, {})["V"] == value
        v1 = encode_start_v1(order(made), Names())
        assert json.loads(v1.body)["args"]["v"] == [value]
        assert v1.attributes == {"cluster": "1xl4"}
        assert made.labels == {"k": value}
    assert kept > len(CORPUS) * 3 / 4


def test_our_variables_win() -> None:
    """A job cannot give itself other GPUs, another name or another output directory."""
    request = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "ZEN_JOB_ID": "other", "ZEN_OUTPUT_DIR": "/"}
    made = accepted({**NATIVE, "environment": request})
    assert isinstance(made, JobSpec)
    start = order(made)
    told = environment_for(start, places_for(start, VM_DIR, LocalStore(ROOT)), {})
    assert told["CUDA_VISIBLE_DEVICES"] == "0"
    assert told["ZEN_JOB_ID"] == "fresh"
    assert told["ZEN_OUTPUT_DIR"].startswith(str(VM_DIR))


def test_no_id_leaves_its_directory() -> None:
    """The functions that make paths hold for any text, also for what no door would let in."""
    seen: dict[str, str] = {}
    for value in CORPUS:
        part = quoted(value)
        assert part not in ("", ".", "..")
        assert not {"/", "\\", "\0", "\n"} & set(part)
        assert len(part.encode()) <= 255
        assert seen.setdefault(part, value) == value
        key = LogPath(value, value, value, 1).key
        assert key.split("/") == ["logs", part, part, part, "1"]
        spec = JobSpec(job_id=value, user_id=value, tenant_id=value)
        places = places_for(order(spec, value), VM_DIR, LocalStore(ROOT))
        assert inside(VM_DIR / "jobs", places.base)
        for path in (places.work, places.temporary, places.status_file):
            assert inside(places.base, path)
        assert inside(ROOT / "checkpoints", places.checkpoints)
        assert inside(VM_DIR / "jobs", places.outputs)
        assert job_key("logs", value, "a", "b") != job_key("logs", "a", value, "b") or value == "a"


def inside(root: Path, path: Path) -> bool:
    """Strictly below, after every `..` is worked out."""
    return os.path.normpath(path).startswith(f"{root}/")


def test_stop_messages_are_json_and_nothing_else() -> None:
    """An id in a stop message is a value, not part of the text."""
    for value in CORPUS:
        if value.isprintable():
            body = json.loads(encode_stop_v1(value, "vm", Names()).body)
            assert body == {"action": "stop", "job_id": value}


async def test_routes_refuse_clearly_and_write_nothing() -> None:
    """Over HTTP, every adapter: an answer below 500 in the one shape of errors; what is stored has
    exactly the id that was sent."""
    house = House()
    async with house.client() as client:
        for value in CORPUS[::9]:
            if not value.isprintable():
                continue  # no such character can stand in a path; bodies with them are above
            path = quote(value, safe="")
            for method, url in (
                ("GET", f"/jobs/{path}"),
                ("POST", f"/jobs/{path}/abort"),
                ("POST", f"/jobs/gcp/stop/{path}/{path}"),
                ("GET", f"/api/v1/jobs/{path}"),
            ):
                answer = await client.request(method, url)
                # Their clients are used to a 500 when there is nothing to abort; it says so.
                told = (404, 405, 422, *((500,) if url.endswith("/abort") else ()))
                assert answer.status_code in told, (method, url, answer.status_code)
                assert answer.json()["code"] != "internal"
                assert answer.json()["detail"]
        for value in CORPUS[::7]:
            body = {**V1, "job_id": value}
            raw = json.dumps(body).encode()
            answer = await client.post("/jobs", content=raw, headers=AS_JSON)
            assert answer.status_code in (200, 400, 422), value
            if answer.status_code == 200:
                assert ("0", value) in house.jobs
            else:
                assert "Traceback" not in answer.text
    assert all(shlex.quote(job_id) == job_id for _, job_id in house.jobs)


@pytest.mark.parametrize("number", range(len(BOMBS)))
async def test_bombs_are_refused_at_every_door(number: int) -> None:
    """Bodies that are no JSON, too deep or too large are refused, over HTTP and over the bus."""
    bomb = BOMBS[number]
    house = House()
    async with house.client() as client:
        for path in ("/jobs", "/jobs/gcp", "/jobs/get_by_user_and_ids", "/api/v1/jobs"):
            answer = await client.post(path, content=bomb, headers=AS_JSON)
            assert answer.status_code in (400, 413, 422), (path, answer.text)
            assert answer.json()["error"] == answer.json()["detail"] == answer.json()["message"]
    assert not house.jobs
    try:
        native = decode_submission(InMessage("", "m", NOW, bomb))
    except BadMessage:
        return
    assert isinstance(native, dict)
    assert isinstance(accepted(native), set)
