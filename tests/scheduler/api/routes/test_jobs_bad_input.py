"""Every refusal names the field, what came and what was expected; nothing is stored."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.job_fields import FIELDS
from tests.scheduler.api.fakes import AS_JSON, House, assert_error

JOBS = "/api/v1/jobs"
OK = {"command": ["true"]}

BAD_FIELDS = [
    ({**OK, "gpu_type": "a100"}, "gpu_type", "a100-40gb"),
    ({**OK, "cluster": "3xa100-40gb"}, "cluster", "2xa100-40gb"),
    ({**OK, "gpu_count": -1}, "gpu_count", "from 0 to 64"),
    ({**OK, "gpu_count": 10**30}, "gpu_count", "from 0 to 64"),
    ({**OK, "gpu_count": 9}, "gpu_count", "at most 8"),
    ({**OK, "gpu_count": "two"}, "gpu_count", "a whole number"),
    ({**OK, "gpu_count": 1.5}, "gpu_count", "a whole number"),
    ({**OK, "gpu_count": True}, "gpu_count", "a whole number"),
    ({**OK, "gpu_count": None}, "gpu_count", "a whole number"),
    ({}, "command", "a non-empty list"),
    ({"command": []}, "command", "a non-empty list"),
    ({"command": "echo hi"}, "command", "a list of strings"),
    ({"command": ["a\0b"]}, "command", "without NUL"),
    ({**OK, "job_id": "../etc"}, "job_id", "letters, digits"),
    ({**OK, "job_id": "x" * 64}, "job_id", "1 to 63"),
    ({**OK, "job_id": ""}, "job_id", "1 to 63"),
    ({**OK, "job_id": "a\n"}, "job_id", "1 to 63"),
    ({**OK, "gpus": 2}, "gpus", "nearest: gpu"),
    ({**OK, "zzzzz": 2}, "zzzzz", "one of: "),
    ({**OK, "priority": 10_000}, "priority", "from 0 to 9999"),
    ({**OK, "regions": ["us-centrl1"]}, "regions", "us-central1"),
    ({**OK, "regions": "us-central1"}, "regions", "a list of region names"),
    ({**OK, "labels": {"a": 1}}, "labels", "string values"),
    ({**OK, "environment": {"1A": "x"}}, "environment", "variables"),
    ({**OK, "environment": {"A": "x\0"}}, "environment", "without NUL"),
    ({**OK, "name": "a\0"}, "name", "without NUL"),
    ({**OK, "workflow_args": {"deep": ["a\0"]}}, "workflow_args", "without NUL"),
    ({**OK, "workflow_args": {"k\0": 1}}, "workflow_args", "without NUL"),
    ({**OK, "image": "Ubuntu latest"}, "image", "an image, e.g."),
    ({**OK, "image": "-v/etc:/etc"}, "image", "an image, e.g."),
    ({**OK, "image": "a/../b"}, "image", "an image, e.g."),
    ({**OK, "working_dir": "/app"}, "working_dir", "an image: VMs of a cloud do not have"),
    ({**OK, "image": "a", "working_dir": "app"}, "working_dir", "a path from the root"),
    ({**OK, "gang_scheduling": "yes"}, "gang_scheduling", "true or false"),
    ({**OK, "gpu_memory_mb": 81920}, "gpu_memory_mb", "at most 40960"),
    ({**OK, "max_runtime_minutes": 0}, "max_runtime_minutes", "minutes"),
]


@pytest.mark.parametrize(("submitted", "field", "expected"), BAD_FIELDS)
async def test_bad_field_is_named(submitted: dict[str, object], field: str, expected: str) -> None:
    """A wrong value is answered 422 with the field, what came and what was expected."""
    house = House()
    async with house.client() as client:
        body = assert_error(await client.post(JOBS, json=submitted), 422, "bad_input")
    faults = body["faults"]
    assert isinstance(faults, list)
    fault = next(fault for fault in faults if fault["field"] == field)
    assert expected in fault["expected"]
    assert fault["got"]
    assert field in str(body["error"])
    assert house.jobs == {}


async def test_all_faults_come_at_once() -> None:
    """Three mistakes are three faults in one answer."""
    async with House().client() as client:
        answer = await client.post(JOBS, json={"gpu_count": -1, "gpus": 1})
        body = assert_error(answer, 422, "bad_input")
    faults = body["faults"]
    assert isinstance(faults, list)
    assert {fault["field"] for fault in faults} == {"command", "gpu_count", "gpus"}


BAD_JSON = [
    (b"", "empty"),
    (b'{"command": }', "line 1, column 13"),
    (b'{\n "command": ["a"],\n oops}', "line 3, column 2"),
    (b'{"command": ["a"', "after 16 bytes"),
    (b'{"command": ["a"]} x', "trailing"),
    (b'{"gpu_count": NaN}', "invalid character"),
    (b'{"gpu_count": 1e999}', "out of range"),
    (b'{"gpu_count": ' + b"9" * 5000 + b"}", "out of range"),
    (b'{"name": "\xff"}', "UTF-8"),
    (b'{"name": "\x00"}', "invalid character"),
    (b'{"name": "\\ud800"}', "not JSON"),
    (b"[" * 20_000, "deeply"),
]


@pytest.mark.parametrize(("raw", "said"), BAD_JSON)
async def test_bad_json_says_where(raw: bytes, said: str) -> None:
    """What is not JSON is answered 400, with the place where it breaks."""
    async with House().client() as client:
        body = assert_error(await client.post(JOBS, content=raw, headers=AS_JSON), 400, "bad_json")
    assert said in str(body["error"])


@pytest.mark.parametrize("raw", [b"null", b"3", b'"x"', b"[]", b"[1]", b"[" * 900 + b"]" * 900])
async def test_body_must_be_an_object(raw: bytes) -> None:
    """JSON that is no object is refused as such, however deep."""
    async with House().client() as client:
        answer = await client.post(JOBS, content=raw, headers=AS_JSON)
    assert answer.status_code in (400, 422)
    body = assert_error(answer, answer.status_code, answer.json()["code"])
    assert "body" in str(body["error"])


async def test_deep_nesting_in_a_field_is_refused() -> None:
    """Nesting that JSON allows but nobody needs is a fault of its field."""
    raw = b'{"command": ["a"], "workflow_args": ' + b'{"a":' * 100 + b"1" + b"}" * 101
    async with House().client() as client:
        body = assert_error(await client.post(JOBS, content=raw, headers=AS_JSON), 422, "bad_input")
    assert "levels" in str(body["error"])


async def test_declared_oversize_body_is_413() -> None:
    """A body whose declared length is over the limit is refused before it is read."""
    house = House(max_body_bytes=100)
    async with house.client() as client:
        body = assert_error(
            await client.post(JOBS, json={"command": ["x" * 200]}), 413, "too_large"
        )
    assert "100 bytes" in str(body["error"])
    assert house.jobs == {}


@pytest.mark.parametrize("path", [JOBS, f"{JOBS}/mine/stop"])
async def test_chunked_oversize_body_is_413(path: str) -> None:
    """A body without a declared length is counted as it comes, and cut at the limit."""
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 50
            yield b" " * 50

    async with House(max_body_bytes=100).client() as client:
        answer = await client.post(path, content=chunks(), headers=AS_JSON)
        assert "content-length" not in answer.request.headers
        assert_error(answer, 413, "too_large")
    assert sent <= 200


async def test_body_at_the_limit_is_taken() -> None:
    """The limit itself is allowed."""
    raw = b'{"command": ["true"]}'
    async with House(max_body_bytes=len(raw)).client() as client:
        assert (await client.post(JOBS, content=raw, headers=AS_JSON)).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/xml; charset=utf-8"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_other_content_types_are_415(headers: dict[str, str]) -> None:
    """A body that does not say it is JSON is refused with what was expected."""
    content = gzip.compress(b"{}") if "Content-Encoding" in headers else b'{"command": ["true"]}'
    async with House().client() as client:
        answer = await client.post(JOBS, content=content, headers=headers)
    assert "expected" in str(assert_error(answer, 415, "unsupported_media_type")["error"])


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.zen+json"])
async def test_json_content_types_are_taken(kind: str) -> None:
    """JSON under its other names is JSON."""
    async with House().client() as client:
        answer = await client.post(
            JOBS, content=b'{"command":["a"]}', headers={"content-type": kind}
        )
    assert answer.status_code == 201


BAD_QUERIES = [
    (f"{JOBS}?stat=QUEUED", "stat", "nearest: "),
    (f"{JOBS}?status=DONE", "status", "one of: "),
    (f"{JOBS}?state=pendin", "state", "one of: pending, scheduled, running"),
    (f"{JOBS}?state=nope", "state", "one of: pending, scheduled, running"),
    (f"{JOBS}?tenant_id=", "tenant_id", "leave it out for none"),
    (f"{JOBS}?state=", "state", "leave it out for none"),
    (f"{JOBS}?label=", "label", "leave it out for none"),
    (f"{JOBS}?cluster=3xa100-40gb", "cluster", "nearest: 4xa100-40gb, 2xa100-40gb"),
    ("/api/v1/vms?cluster=nope", "cluster", "one of: 0xcpu, 1xl4"),
    ("/api/v1/vms?region=nope", "region", "us-central1"),
    ("/api/v1/capacity?cluster=nope", "cluster", "one of: 0xcpu, 1xl4"),
    ("/api/v1/cost?cluster=nope", "cluster", "one of: 0xcpu, 1xl4"),
    ("/api/v1/cost?tenant=", "tenant", "leave it out for none"),
    (f"{JOBS}?state=pending&status=RUNNING", "status", "QUEUED"),
    (f"{JOBS}?page_size=0", "page_size", "from 1 to 500"),
    (f"{JOBS}?page_size=501", "page_size", "from 1 to 500"),
    (f"{JOBS}?page_size=-1", "page_size", "from 1 to 500"),
    (f"{JOBS}?page_size=99999999999999999999999999", "page_size", "from 1 to 500"),
    (f"{JOBS}?page_size=٣", "page_size", "from 1 to 500"),
    (f"{JOBS}?page_size=2&page_size=3", "page_size", "one value"),
    (f"{JOBS}?page_token=nonsense", "page_token", "this very list"),
    (f"{JOBS}?label=team", "label", "key=value"),
    (f"{JOBS}?label=a=1&label=a=2", "label", "one value for a"),
    (f"{JOBS}?user_id=a%00b", "user_id", "printable"),
    (f"{JOBS}?cluster={'x' * 600}", "cluster", "512"),
    (f"{JOBS}/a%00b", "job_id", "letters, digits"),
    (f"{JOBS}/{'x' * 64}", "job_id", "1 to 63"),
    (f"{JOBS}/mine?usr_id=1", "usr_id", "nearest: user_id"),
    ("/api/v1/vms?gone=maybe", "gone", "true or false"),
    ("/api/v1/health?x=1", "x", "no query parameters"),
]


@pytest.mark.parametrize(("path", "field", "expected"), BAD_QUERIES)
async def test_bad_query_is_named(path: str, field: str, expected: str) -> None:
    """Unknown parameters and wrong values of known ones are refused, with the nearest."""
    async with House().client() as client:
        body = assert_error(await client.get(path), 422, "bad_input")
    faults = body["faults"]
    assert isinstance(faults, list)
    assert [fault["field"] for fault in faults] == [field]
    assert expected in faults[0]["expected"]


async def test_stop_body_is_checked() -> None:
    """A stop takes a reason and nothing else."""
    async with House().client() as client:
        await client.post(JOBS, json={**OK, "job_id": "mine"})
        stop = f"{JOBS}/mine/stop"
        for content, status, code in (
            (b'{"why": "x"}', 422, "bad_input"),
            (b'{"reason": 3}', 422, "bad_input"),
            (b'{"reason": "a\\u0000"}', 422, "bad_input"),
            (b"[]", 422, "bad_input"),
            (b"{", 400, "bad_json"),
        ):
            assert_error(await client.post(stop, content=content, headers=AS_JSON), status, code)
        assert (await client.get(f"{JOBS}/mine")).json()["status"] == "QUEUED"
        assert (await client.post(stop, content=b"null", headers=AS_JSON)).status_code == 202


async def test_unknown_path_and_method() -> None:
    """Wrong paths and methods are told in the same shape, with the methods that are possible."""
    async with House().client() as client:
        assert_error(await client.get("/api/v1/job"), 404, "not_found")
        assert_error(await client.get("/api/v1/jobs/"), 404, "not_found")
        answer = await client.put(JOBS, json=OK)
        assert_error(answer, 405, "method_not_allowed")
    assert {"GET", "POST"} <= set(answer.headers["Allow"].split(", "))


async def test_database_down_is_503() -> None:
    """While the database is away every route that needs it says so, and when to try again."""
    house = House()
    house.store.down = True
    async with house.client() as client:
        answers = [
            await client.post(JOBS, json=OK),
            await client.get(JOBS),
            await client.get(f"{JOBS}/mine"),
            await client.delete(f"{JOBS}/mine"),
            await client.get("/api/v1/status"),
        ]
        assert (await client.get("/api/v1/health")).status_code == 200
    for answer in answers:
        assert_error(answer, 503, "database_unavailable")
        assert answer.headers["Retry-After"] == "1"


async def test_unexpected_error_is_500_without_its_text() -> None:
    """A bug is answered in the one shape with a request id, and tells strangers nothing."""
    house = House()

    async def broken() -> None:
        raise RuntimeError("a bug with a secret in its text")

    house.store.pause = broken
    async with house.client() as client:
        answer = await client.get(f"{JOBS}/mine")
    assert_error(answer, 500, "internal")
    assert "secret" not in answer.text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(max_size=8), values, max_size=5))
async def test_no_body_breaks_the_service(request: dict[str, object]) -> None:
    """Whatever stands in the body, the answer is 201 or a refusal in the one shape."""
    async with House().client() as client:
        try:
            answer = await client.post(JOBS, json=request)
        except (ValueError, UnicodeEncodeError):
            return  # the client cannot even write it down as JSON
    if answer.status_code != 201:
        assert answer.status_code in (400, 422)
        assert_error(answer, answer.status_code, answer.json()["code"])


@settings(max_examples=60)
@given(st.binary(max_size=60))
async def test_no_bytes_break_the_service(raw: bytes) -> None:
    """Bytes of any kind are a refusal in the one shape."""
    async with House().client() as client:
        answer: httpx.Response = await client.post(JOBS, content=raw, headers=AS_JSON)
    assert answer.status_code in (400, 422)
    assert_error(answer, answer.status_code, answer.json()["code"])
