"""Somebody with a small role gives themselves a larger one."""

from __future__ import annotations

import pytest

from tests.attacks.intruders import OTHER, VICTIM, Intruder, new_key, owner
from tests.e2e.stack import Stack

pytestmark = pytest.mark.slow

ODD_SCOPES: tuple[object, ...] = (
    ["everything"],
    "on-behalf-of",
    [["on-behalf-of"]],
    [{}],
    [None],
    7,
)
ODD_ROLES: tuple[object, ...] = (["admin"], {}, None, 7, "owner", "ADMIN")


@pytest.mark.parametrize(
    ("role", "tenant_id"),
    [("viewer", "*"), ("member", OTHER), ("member", "*"), ("operator", "*"), ("admin", OTHER)],
)
def test_no_role_but_admin_of_all_makes_roles(up: Stack, role: str, tenant_id: str) -> None:
    """Neither by a grant, nor by a key, nor by the owner's key with a new secret. An admin of one
    tenant is none of the service."""
    made = new_key(up, f"climber-{role}", tenant_id, role)
    mine = f"key:{made['key_id']}"
    owners = up.key.split("_")[1]
    with Intruder(role, made["key"]).calls(up) as line:
        answers = [
            line.post(
                "/api/v1/grants", json={"principal": mine, "tenant_id": "*", "role": "admin"}
            ),
            line.post(
                "/api/v1/grants", json={"principal": mine, "tenant_id": VICTIM, "role": "member"}
            ),
            line.post("/api/v1/keys", json={"name": "more", "tenant_id": "*", "role": "admin"}),
            line.post(f"/api/v1/keys/{owners}/rotate"),
            line.delete(f"/api/v1/keys/{owners}"),
            line.get("/api/v1/keys"),
            line.get("/api/v1/grants"),
            line.get("/api/v1/audit"),
            line.get("/api/v1/audit/verify"),
        ]
        rights = line.get("/api/v1/whoami").json()["rights"]
    assert [a.text for a in answers if a.status_code != 403] == []
    assert not {"keys", "grants", "audit.read"} & {right["right"] for right in rights}


def test_a_key_that_only_reads_changes_nothing(up: Stack) -> None:
    """The scope read-only holds whatever the role allows, also an admin's and a member's."""
    key = str(new_key(up, "looker", "*", "admin", scopes=["read-only"])["key"])
    also = str(new_key(up, "looker-2", OTHER, "member", scopes=["read-only"])["key"])
    with Intruder("admin", key).calls(up) as line:
        body = {"principal": "user:x@example.com", "tenant_id": "*", "role": "admin"}
        assert line.post("/api/v1/grants", json=body).status_code == 403
        assert line.patch(f"/api/v1/tenants/{OTHER}", json={"weight": 9}).status_code == 403
    with Intruder("member", also).calls(up) as line:
        assert line.post("/api/v1/jobs", json={"command": ["true"]}).status_code == 403
        assert line.get("/api/v1/jobs").status_code == 200


def test_a_scope_that_does_not_exist_is_refused(up: Stack) -> None:
    """With its name, whatever its type."""
    with owner(up) as line:
        for scopes in ODD_SCOPES:
            answer = line.post("/api/v1/keys", json={"name": "odd", "scopes": scopes})
            assert answer.status_code == 422, answer.text
        for role in ODD_ROLES:
            answer = line.post("/api/v1/keys", json={"name": "odd", "role": role})
            assert answer.status_code == 422, answer.text
