"""Keys, grants and the audit log over HTTP; what roles may do."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import httpx
import pytest

from core.access import Scope
from core.changes import DeadLetter
from core.tenants import Tenant
from scheduler.api.http.app import endpoints
from tests.access import bearer, known
from tests.scheduler.api.fakes import NOW, House, assert_error

JOB = {"command": ["true"], "gpu_type": "l4", "environment": {"TOKEN": "hush"}}
MEMBER, MEMBER_KEY = known("member000000", ("default", "member"))
SUBMITTER, SUBMITTER_KEY = known("submitter000", ("default", "submitter"), user_id="sue")
VIEWER, VIEWER_KEY = known("viewer000000", ("default", "viewer"), user_id="vic")
OPERATOR, OPERATOR_KEY = known("operator0000", ("*", "operator"), user_id="opa")
ADMIN, ADMIN_KEY = known("admin0000000", ("*", "admin"), user_id="adam")
FOREIGN, FOREIGN_KEY = known("foreign00000", ("other", "member"), user_id="fay")
NAMER, NAMER_KEY = known(
    "namer0000000", ("default", "member"), scopes=frozenset({Scope.ON_BEHALF_OF})
)
V1 = {"workflow": "echo", "args": {"x": 1}, "gpu_type": "l4"}
GRANT = {"principal": "key:viewer000000", "tenant_id": "ml", "role": "member"}
KEYS = (MEMBER_KEY, SUBMITTER_KEY, VIEWER_KEY, OPERATOR_KEY, ADMIN_KEY, FOREIGN_KEY, NAMER_KEY)


@pytest.fixture
def house() -> House:
    return House(keys=KEYS)


async def submitted(client: httpx.AsyncClient, key: str, **fields: object) -> httpx.Response:
    return await client.post("/api/v1/jobs", json={**JOB, **fields}, headers=bearer(key))


async def test_without_a_key_nothing_but_health_is_answered(house: House) -> None:
    async with house.client() as client:
        del client.headers["authorization"]
        for path in ("/api/v1/jobs", "/metrics", "/docs", "/api/v1/whoami", "/jobs"):
            refused = await client.get(path)
            assert_error(refused, 401, "unauthenticated")
            assert refused.headers["www-authenticate"].startswith("Bearer")
        assert (await client.get("/api/v1/health")).status_code == 200


async def test_values_of_the_environment_are_for_owners_and_members(house: House) -> None:
    async with house.client() as client:
        made = await submitted(client, SUBMITTER, job_id="secretive")
        assert made.status_code == 201, made.text
        for key, seen in (
            *((SUBMITTER, "hush"), (MEMBER, "hush")),
            *((VIEWER, "(hidden)"), (OPERATOR, "(hidden)"), (ADMIN, "(hidden)")),
        ):
            for path in ("/api/v1/jobs/secretive", "/api/v1/jobs?user_id=sue"):
                answer = await client.get(path, headers=bearer(key))
                assert answer.status_code == 200, answer.text
                assert ("hush" in answer.text) == (seen == "hush"), (path, key)
        assert_error(
            await client.get("/api/v1/jobs/secretive", headers=bearer(FOREIGN)), 404, "not_found"
        )


async def test_who_submitted_comes_from_the_key(house: House) -> None:
    async with house.client() as client:
        assert (await submitted(client, SUBMITTER, job_id="a")).json()["user_id"] == "sue"
        assert_error(
            await submitted(client, SUBMITTER, job_id="b", user_id="ada"), 403, "forbidden"
        )
        assert_error(
            await submitted(client, SUBMITTER, job_id="c", tenant_id="other"), 403, "forbidden"
        )
        named = await submitted(client, NAMER, job_id="d", user_id="carol")
        assert named.json()["user_id"] == "carol"
        house.put_tenant(Tenant("other"))
        assert (await submitted(client, FOREIGN, job_id="e")).status_code == 201
        mine = await client.get("/api/v1/jobs/e", headers=bearer(FOREIGN))
        assert mine.json()["tenant_id"] == "other"
        assert_error(await submitted(client, VIEWER), 403, "forbidden")


async def test_submitters_stop_their_own_jobs_and_members_all(house: House) -> None:
    async with house.client() as client:
        await submitted(client, MEMBER, job_id="adas")
        await submitted(client, SUBMITTER, job_id="sues")
        stop = "/api/v1/jobs/adas/stop"
        assert_error(await client.post(stop, headers=bearer(SUBMITTER)), 403, "forbidden")
        assert_error(await client.post(stop, headers=bearer(VIEWER)), 403, "forbidden")
        assert_error(await client.post(stop, headers=bearer(FOREIGN)), 404, "not_found")
        stopped = await client.post("/api/v1/jobs/sues/stop", headers=bearer(MEMBER))
        assert stopped.is_success, stopped.text
        assert (await client.post(stop, headers=bearer(OPERATOR))).is_success


async def test_a_key_is_made_used_rotated_and_revoked(house: House) -> None:
    async with house.client() as client:
        body = {"name": "ci", "role": "submitter", "expires_in_s": 60}
        made = (await client.post("/api/v1/keys", json=body)).json()
        me = (await client.get("/api/v1/whoami", headers=bearer(made["key"]))).json()
        assert (me["principal"], me["user_id"]) == (f"key:{made['key_id']}", "ci")
        listed = await client.get("/api/v1/keys")
        assert made["key"] not in listed.text
        assert made["key_id"] in listed.text
        path = f"/api/v1/keys/{made['key_id']}"
        rotated = (await client.post(f"{path}/rotate")).json()
        assert rotated["key"] != made["key"]
        revoked = (await client.delete(path)).json()
        assert revoked["revoked_at"]
        assert_error(await client.post(f"{path}/rotate"), 409, "conflict")
        assert_error(await client.delete("/api/v1/keys/nobody"), 404, "not_found")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({}, "name"),
        ({"name": "a b"}, "user_id"),
        ({"name": "a", "role": "king"}, "role"),
        ({"name": "a", "role": ["member"]}, "role"),
        ({"name": "a", "tenant_id": "../x"}, "tenant_id"),
        ({"name": "a", "scopes": ["all"]}, "scopes"),
        ({"name": "a", "scopes": [[]]}, "scopes"),
        ({"name": "a", "expires_in_s": True}, "expires_in_s"),
        ({"name": "a", "expires_in_s": 1e99}, "expires_in_s"),
    ],
)
async def test_wrong_fields_of_a_key_are_named(
    house: House, fields: dict[str, object], wrong: str
) -> None:
    async with house.client() as client:
        refused = await client.post("/api/v1/keys", json=fields)
        assert_error(refused, 422, "bad_input")
        assert wrong in refused.text


async def test_grants_are_given_and_taken_and_every_change_is_in_the_log(house: House) -> None:
    grant = {"principal": "key:viewer000000", "tenant_id": "ml", "role": "member"}
    async with house.client() as client:
        shown = {**grant, "source": "stored"}
        assert (await client.post("/api/v1/grants", json=grant)).json() == shown
        assert shown in (await client.get("/api/v1/grants")).json()["grants"]
        assert (await client.request("DELETE", "/api/v1/grants", params=grant)).json() == shown
        again = await client.request("DELETE", "/api/v1/grants", params=grant)
        assert_error(again, 404, "not_found")
        await submitted(client, SUBMITTER, job_id="logged")
        rows = (await client.get("/api/v1/audit", headers=bearer(ADMIN))).json()["rows"]
    seen = [(row["action"], row["principal"], row["target"]) for row in rows]
    assert ("job.submit", "key:submitter000", "job/default/sue/logged") in seen
    assert ("grant.add", "key:owner0000000", "grant/key:viewer000000") in seen


@pytest.mark.parametrize("key", [VIEWER, SUBMITTER, MEMBER, OPERATOR, FOREIGN])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/keys"),
        ("POST", "/api/v1/keys"),
        ("GET", "/api/v1/grants"),
        ("POST", "/api/v1/grants"),
        ("GET", "/api/v1/audit"),
        ("GET", "/api/v1/audit/verify"),
    ],
)
async def test_keys_grants_and_the_log_are_for_admins(
    house: House, key: str, method: str, path: str
) -> None:
    async with house.client() as client:
        body = None if method == "GET" else {"name": "x"}
        refused = await client.request(method, path, headers=bearer(key), json=body)
        assert_error(refused, 403, "forbidden")


CHANGES: dict[str, tuple[str, object, str]] = {
    "POST /api/v1/jobs": ("", {**JOB, "job_id": "a1"}, "job.submit"),
    "POST /api/v1/jobs:batch": ("", {"jobs": [{**JOB, "job_id": "b1"}]}, "job.submit"),
    "POST /jobs": ("", {"definition": {"name": "a2", "command": ["true"]}}, "job.submit"),
    "POST /jobs/gcp": ("", {**V1, "job_id": "a3"}, "job.submit"),
    "POST /jobs/lum": ("", {**V1, "job_id": "a4"}, "job.submit"),
    "POST /api/v1/jobs/{job_id}/stop": ("a1", None, "job.stop"),
    "DELETE /api/v1/jobs/{job_id}": ("s1", None, "job.stop"),
    "POST /jobs/{job_id}/abort": ("s2", None, "job.stop"),
    "POST /jobs/gcp/stop/{job_id}/{user_id}": ("s3/0", None, "job.stop"),
    "POST /jobs/{job_id}/stop": ("s4", None, "job.stop"),
    "POST /api/v1/groups/{group}/stop": ("g", None, "job.stop"),
    "POST /api/v1/tenants": ("", {"tenant_id": "t1"}, "tenant.set"),
    "PATCH /api/v1/tenants/{tenant_id}": ("t1", {"weight": 2}, "tenant.set"),
    "DELETE /api/v1/tenants/{tenant_id}": ("t1", None, "tenant.delete"),
    "POST /api/v1/keys": ("", {"name": "k"}, "key.create"),
    "POST /api/v1/keys/{key_id}/rotate": ("viewer000000", None, "key.rotate"),
    "DELETE /api/v1/keys/{key_id}": ("viewer000000", None, "key.revoke"),
    "POST /api/v1/grants": ("", GRANT, "grant.add"),
    "DELETE /api/v1/grants": ("?" + urlencode(GRANT), None, "grant.remove"),
    "POST /api/v1/dead-letters/{letter_id}/replay": ("m-1", None, "dead_letter.replay"),
}
"""Route → what fills its path, its body, and the action in the log."""
NO_CHANGE = {"POST /jobs/get_by_user_and_ids"}
ELSEWHERE = ("/api/v1/code/", "/api/v1/secrets/", "/api/v1/sessions/", "/sign-")
"""Begins paths of routes with tests of their own for this, and of code: bytes that do nothing until
a submission names them, which leaves a row."""
"""Routes of the configuration: tests/scheduler/operations/test_live_config.py."""


def _path(route: str, words: str) -> str:
    path = route.partition(" ")[2]
    for word in words.split("/") if "{" in path else ():
        path = re.sub(r"\{[a-z_]+\}", word, path, count=1)
    return path + (words if words.startswith("?") else "")


async def test_every_route_that_changes_something_leaves_a_row(house: House) -> None:
    """With who, from where, the request and the target; no such route is missing in the table."""
    table = endpoints(house.services())
    ours = (made for made in table if not made.path.startswith(ELSEWHERE))
    writes = {f"{made.method} {made.path}" for made in ours if made.method != "GET"}
    assert writes == CHANGES.keys() | NO_CHANGE
    house.write(DeadLetter("m-1", "submit", b"{}", {}, "bad", NOW))
    async with house.client() as client:
        for job_id in ("s1", "s2", "s3", "s4"):
            await client.post("/api/v1/jobs", json={**JOB, "job_id": job_id})
        await client.post("/api/v1/jobs", json={**JOB, "job_id": "g1", "group": "g"})
        for route, (words, body, action) in CHANGES.items():
            before = len(house.tables.audit_log)
            method = route.partition(" ")[0]
            answer = await client.request(method, _path(route, words), json=body)
            assert answer.status_code < 300, (route, answer.text)
            added = house.tables.audit_log[before:]
            assert [row.entry.action for row in added] == [action], route
            actor = added[0].entry.actor
            assert actor.principal == "key:owner0000000", route
            assert all((actor.address, actor.request_id, added[0].entry.target)), route
