"""The section `access`: who may call, by configuration."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from config.errors import ConfigError
from config.load import load_settings
from config.reload import Reader, merged, restart_faults
from core.access import Grant, Right
from core.access_rules import AccessRules
from tests.config.test_load import MINIMAL

CORP = {"issuer": "https://login.example.org", "audiences": ["zen"]}


def access(given: dict[str, Any]) -> AccessRules:
    return load_settings(None, {}, {"access": copy.deepcopy(given)}).access


def faults(given: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        access(given)
    return [str(fault) for fault in caught.value.faults]


def test_nobody_is_trusted_by_default() -> None:
    """Keys alone."""
    rules = load_settings(None, {}).access
    assert (rules.issuers, rules.google_audiences, rules.iap_audience) == ({}, (), None)
    assert rules == AccessRules()


def test_an_issuer_with_its_clients() -> None:
    """Tokens for its clients count as those for the audiences do."""
    rules = access({"issuers": {"corp": {**CORP, "client_id": "web", "cli_client_id": "cli"}}})
    issuer = rules.issuers["corp"]
    assert (issuer.name, issuer.audiences) == ("corp", ("zen", "web", "cli"))
    assert rules.by_issuer("https://login.example.org") is issuer


def test_groups_name_their_issuer_where_there_are_several() -> None:
    """Else a group of one would have the roles that are meant for the other's."""
    issuers = {"corp": CORP, "lab": {**CORP, "issuer": "https://lab.example.org"}}
    given = [{"tenant": "ml", "role": "member"}]
    (fault,) = faults({"issuers": issuers, "groups": {"ml": given, "corp/ml": given}})
    assert "access.groups.ml" in fault
    assert "corp/ml, lab/ml" in fault
    assert access({"issuers": issuers, "groups": {"lab/ml": given}}).grants


def test_grants_of_people_and_groups() -> None:
    """Addresses in small letters, as identities have them."""
    rules = access(
        {
            "groups": {"ml-team@example.com": [{"tenant": "ml", "role": "member"}]},
            "users": {"Ada@Example.com": [{"tenant": "*", "role": "auditor"}]},
            "roles": {"auditor": ["audit.read", "jobs.read"]},
        }
    )
    assert rules.grants == {
        "group:ml-team@example.com": (Grant("group:ml-team@example.com", "ml", "member"),),
        "user:ada@example.com": (Grant("user:ada@example.com", "*", "auditor"),),
    }
    assert rules.roles["auditor"] == {Right.AUDIT_READ, Right.JOBS_READ}
    assert "viewer" in rules.roles


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"roles": {"x": ["jobs.reed"]}}, 'access.roles.x: got the right "jobs.reed", expected'),
        ({"roles": {"x": ["jobs.reed"]}}, "rights among: audit.read, config.read"),
        ({"roles": {"admin": ["jobs.read"]}}, "a name that no built-in role has"),
        ({"roles": {"Big": []}}, "small letters"),
        ({"users": {"ada": []}}, "an e-mail address"),
        ({"users": {"a@b.c": [{"tenant": "ml", "role": "boss"}]}}, "users.a@b.c.0.role: unknown"),
        ({"users": {"a@b.c": [{"tenant": "m l", "role": "viewer"}]}}, "0.tenant: got"),
        ({"users": {"a@b.c": [{"tenant": "ml", "rôle": "viewer"}]}}, "unknown key"),
        ({"groups": {"g": {"tenant": "ml"}}}, "a list of {tenant: ID, role: ROLE}"),
        ({"issuers": {"corp": {"issuer": "https://a.b"}}}, "whom its tokens are meant for"),
        ({"issuers": {"corp": {**CORP, "issuer": "http://a.b"}}}, "an https URL"),
        ({"issuers": {"corp": {**CORP, "issuer": "https://u:p@a.b"}}}, "an https URL"),
        ({"issuers": {"corp": {**CORP, "algorithms": ["HS256"]}}}, "a list among RS256"),
        ({"issuers": {"corp": {**CORP, "algorithms": ["none"]}}}, "a list among RS256"),
        ({"issuers": {"corp": {**CORP, "algorithms": []}}}, "a list among RS256"),
        ({"issuers": {"corp": CORP, "b": CORP}}, "each issuer once"),
        ({"issuers": {"corp": {"audiences": ["zen"]}}}, "issuers.corp.issuer: got nothing"),
        ({"session_idle_s": 0}, "access.session_idle_s"),
        ("anybody", "access: got"),
    ],
)
def test_faults_name_the_field(given: Any, words: str) -> None:
    """And say what is allowed."""
    assert words in "; ".join(faults(given))


def test_an_issuer_on_loopback_needs_no_tls(tmp_path: Path) -> None:
    """For tests and laptops."""
    rules = access({"issuers": {"corp": {**CORP, "issuer": "http://127.0.0.1:9000"}}})
    assert rules.issuers["corp"].issuer == "http://127.0.0.1:9000"


def test_an_edit_counts_while_the_service_runs() -> None:
    """No restart for roles, people and issuers."""
    reader = Reader({})
    started = reader.file(MINIMAL.encode(), "zen.yaml")
    edit = f"{MINIMAL}\naccess: {{roles: {{auditor: [audit.read]}}}}\n"
    candidate = reader.file(edit.encode(), "zen.yaml")
    assert restart_faults(started, candidate, "zen.yaml") == []
    assert merged(started, candidate).access.roles["auditor"] == {Right.AUDIT_READ}
    assert any("access.roles.auditor" in line for line in candidate.diff(started))
