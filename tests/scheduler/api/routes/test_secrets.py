"""Secrets over HTTP: written by those who may, read by nobody."""

from __future__ import annotations

import pytest

from tests.access import bearer, known
from tests.scheduler.api.fakes import House, assert_error

MEMBER, MEMBER_KEY = known("member000000", ("default", "member"))
SUBMITTER, SUBMITTER_KEY = known("submitter000", ("default", "submitter"))
OPERATOR, OPERATOR_KEY = known("operator0000", ("*", "operator"))
FOREIGN, FOREIGN_KEY = known("foreign00000", ("other", "member"))
URL = "/api/v1/secrets/HF_TOKEN"
HUSH = {"value": "hush-hush"}


@pytest.fixture
def house() -> House:
    return House(keys=(MEMBER_KEY, SUBMITTER_KEY, OPERATOR_KEY, FOREIGN_KEY))


async def test_a_secret_is_set_listed_and_deleted_without_showing_it(house: House) -> None:
    async with house.client(MEMBER) as client:
        made = await client.put(URL, json=HUSH)
        assert (made.status_code, made.json()["version"]) == (200, 1)
        again = await client.put(URL, json={"value": "hush-again"})
        assert again.json()["reference"] == "zen://HF_TOKEN"
        listed = await client.get("/api/v1/secrets")
        assert [row["version"] for row in listed.json()["secrets"]] == [2]
        deleted = await client.delete(URL)
        assert deleted.status_code == 200
        assert_error(await client.delete(URL), 404, "not_found")
        for answer in (made, again, listed, deleted):
            assert "hush" not in answer.text
    actions = [row.entry.action for row in house.tables.audit_log]
    assert actions == ["secret.set", "secret.set", "secret.delete"]
    assert "hush" not in str(house.tables.audit_log)


async def test_another_tenants_secrets_are_neither_listed_nor_changed(house: House) -> None:
    async with house.client(MEMBER) as client:
        await client.put(URL, json=HUSH)
        other = bearer(FOREIGN)
        assert (await client.get("/api/v1/secrets", headers=other)).json() == {"secrets": []}
        for method in ("PUT", "DELETE"):
            body = HUSH if method == "PUT" else None
            where = f"{URL}?tenant_id=default"
            refused = await client.request(method, where, json=body, headers=other)
            assert_error(refused, 403, "forbidden")
        assert_error(await client.delete(URL, headers=other), 404, "not_found")


@pytest.mark.parametrize("key", [SUBMITTER, OPERATOR])
async def test_submitters_and_operators_set_no_secrets(house: House, key: str) -> None:
    async with house.client(key) as client:
        assert_error(await client.put(URL, json=HUSH), 403, "forbidden")
        assert_error(await client.get("/api/v1/secrets"), 403, "forbidden")


@pytest.mark.parametrize("body", ["hush-hush", ["hush-hush"], {"valeu": "hush-hush"}, {}, None])
async def test_a_wrong_body_is_not_repeated(house: House, body: object) -> None:
    async with house.client(MEMBER) as client:
        refused = await client.put(URL, json=body)
        assert refused.status_code in (400, 422)
        assert "hush" not in refused.text


async def test_operators_seal_all_secrets_with_the_newest_key(house: House) -> None:
    async with house.client(MEMBER) as client:
        await client.put(URL, json=HUSH)
        assert_error(await client.post("/api/v1/secrets/rekey"), 403, "forbidden")
        rekeyed = await client.post("/api/v1/secrets/rekey", headers=bearer(OPERATOR))
        assert rekeyed.json() == {"sealed": 0}


async def test_without_a_key_nothing_is_stored(house: House) -> None:
    house.vault = None
    async with house.client(MEMBER) as client:
        assert_error(await client.put(URL, json=HUSH), 409, "conflict")
