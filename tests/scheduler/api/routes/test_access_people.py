"""People, roles of the configuration and requests for one tenant, through the API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import httpx
import pytest

from core.access import Grant, Right
from core.access_rules import AccessRules
from scheduler.api.http.app import create_app
from tests.access import known
from tests.issuer import Issuer, serving
from tests.scheduler.api.fakes import AS_JSON, NOW, House, assert_error

ROLES = AccessRules().roles
AUDITOR = {**ROLES, "auditor": frozenset({Right.AUDIT_READ, Right.FLEET_READ})}
MEMBER, MEMBER_KEY = known("member000000", ("red", "member"), ("blue", "viewer"))


def house(**access: object) -> House:
    rules = AccessRules(**access)  # type: ignore[arg-type]
    return House(keys=(MEMBER_KEY,), door={"access": rules, "create_tenants": True})


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving(Issuer(now=NOW.timestamp)) as made:
        yield made


@pytest.fixture
async def nobody(issuer: Issuer) -> AsyncIterator[httpx.AsyncClient]:
    """A client without credentials, of an API that trusts the issuer."""
    grants = {"group:ml": (Grant("group:ml", "ml", "member"),)}
    made = house(issuers={"local": issuer.settings()}, grants=grants)
    app = create_app(made.services())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://zen"
    ) as client:
        yield client


async def test_a_person_submits_for_their_group(nobody: httpx.AsyncClient, issuer: Issuer) -> None:
    """As themselves: whose job it is comes from the token."""
    token = {"authorization": f"Bearer {issuer.token(groups=['ml'])}"}
    body = b'{"command": ["true"], "tenant_id": "ml", "gpu_count": 0}'
    made = await nobody.post("/api/v1/jobs", content=body, headers={**AS_JSON, **token})
    assert made.status_code == 201, made.text
    found = (await nobody.get("/api/v1/jobs", headers=token)).json()["jobs"]
    assert [job["user_id"] for job in found] == ["ada_at_example.com"]
    me = (await nobody.get("/api/v1/whoami", headers=token)).json()
    assert me["principal"] == "user:ada@example.com"


async def test_a_person_without_a_role_may_do_nothing(
    nobody: httpx.AsyncClient, issuer: Issuer
) -> None:
    """Known, and refused."""
    token = {"authorization": f"Bearer {issuer.token()}"}
    assert_error(await nobody.get("/api/v1/jobs", headers=token), 403, "forbidden")


async def test_a_wrong_token_is_told_which_claim(nobody: httpx.AsyncClient, issuer: Issuer) -> None:
    """401 with the name of the claim."""
    token = {"authorization": f"Bearer {issuer.token(aud='other')}"}
    body = assert_error(await nobody.get("/api/v1/jobs", headers=token), 401, "unauthenticated")
    assert str(body["error"]).startswith("aud:")


async def test_an_issuer_that_is_down_is_told(nobody: httpx.AsyncClient, issuer: Issuer) -> None:
    """503: the caller may try again."""
    issuer.down = True
    token = {"authorization": f"Bearer {issuer.token()}"}
    assert_error(await nobody.get("/api/v1/jobs", headers=token), 503, "issuer_unavailable")


async def test_a_role_of_the_configuration_can_be_given() -> None:
    """And taken away after it has left the configuration."""
    made = house(roles=AUDITOR)
    async with made.client() as client:
        grant = {"principal": "user:Eve@Example.com", "tenant_id": "*", "role": "auditor"}
        given = await client.post("/api/v1/grants", json=grant)
        assert given.json()["principal"] == "user:eve@example.com"
        unknown = await client.post("/api/v1/grants", json={**grant, "role": "boss"})
        body = assert_error(unknown, 422, "bad_input")
        assert "admin, auditor, member" in str(body["error"])
        made.door = {"access": AccessRules(), "create_tenants": True}
        again = await client.post("/api/v1/grants", json=grant)
        assert_error(again, 422, "bad_input")
        gone = await client.delete("/api/v1/grants", params=grant)
        assert gone.status_code == 200


async def test_a_request_for_one_tenant_sees_that_tenant_alone() -> None:
    """Also with a key that may do more."""
    made = house()
    async with made.client(MEMBER) as client:
        red = {"x-zen-tenant": "red"}
        body = {"command": ["true"], "gpu_count": 0}
        job = await client.post("/api/v1/jobs", json=body, headers=red)
        assert job.status_code == 201, job.text
        assert [job.spec.tenant_id for job in made.jobs.values()] == ["red"]
        blue = await client.get("/api/v1/jobs", headers={"x-zen-tenant": "blue"})
        assert blue.json()["jobs"] == []
        other = {"command": ["true"], "tenant_id": "red", "gpu_count": 0}
        refused = await client.post("/api/v1/jobs", json=other, headers={"x-zen-tenant": "blue"})
        assert_error(refused, 403, "forbidden")
        unknown = await client.get("/api/v1/jobs", headers={"x-zen-tenant": "green"})
        assert_error(unknown, 403, "forbidden")


async def test_a_grant_to_a_group_names_its_issuer_where_there_are_several(issuer: Issuer) -> None:
    """A bare name would count for nobody; the refusal says which issuers there are."""
    lab = replace(issuer.settings(), name="lab", issuer="https://lab.example.org")
    made = house(issuers={"local": issuer.settings(), "lab": lab})
    body = {"tenant_id": "ml", "role": "member"}
    async with made.client() as client:
        refused = await client.post("/api/v1/grants", json={**body, "principal": "group:ml"})
        taken = await client.post("/api/v1/grants", json={**body, "principal": "group:lab/ml"})
    assert "one of lab/ml, local/ml" in str(assert_error(refused, 422, "bad_input"))
    assert taken.status_code == 200


async def test_grants_of_the_configuration_are_listed() -> None:
    """With their source: they are changed in the file alone, and who tries here is told."""
    said = Grant("group:ml", "ml", "member")
    made = house(grants={"group:ml": (said,)})
    shown = {"principal": "group:ml", "tenant_id": "ml", "role": "member"}
    async with made.client() as client:
        listed = (await client.get("/api/v1/grants")).json()["grants"]
        assert {**shown, "source": "configuration"} in listed
        assert {row["source"] for row in listed} == {"configuration", "stored"}
        only = await client.get("/api/v1/grants", params={"principal": "group:ml"})
        assert only.json()["grants"] == [{**shown, "source": "configuration"}]
        refused = await client.delete("/api/v1/grants", params=shown)
    assert refused.status_code == 404
    assert "the configuration says it" in refused.text
