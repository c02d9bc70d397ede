"""Whose a submission is."""

from __future__ import annotations

import pytest

from core.access import Principal, Right, Tenants
from core.groups import Owner
from core.submit_topics import NOBODY, TopicBinding
from core.tenants import DEFAULT_TENANT
from scheduler.access.authenticator import NotAllowed
from scheduler.access.claims import claimed, refuse_named_defaults


def test_a_submission_that_names_nobody_is_the_principals() -> None:
    """Its user, and its only tenant."""
    made = claimed(TopicBinding("t", "vision", "ada").principal, Owner(DEFAULT_TENANT, NOBODY))
    assert (made.tenant_id, made.user_id) == ("vision", "ada")


def test_a_principal_with_two_tenants_has_to_say_which() -> None:
    """The default tenant is none of them."""
    two = {Right.JOBS_SUBMIT: Tenants(frozenset({"a", "b"}))}
    with pytest.raises(NotAllowed, match="may submit for: a, b"):
        claimed(Principal("key:x", "0", "x", two), Owner(DEFAULT_TENANT, NOBODY))


def test_the_default_tenant_and_user_0_may_be_named_by_their_own() -> None:
    """In so many words they are nobody else's; a submission that does not say them is."""
    own = {Right.JOBS_SUBMIT: Tenants(frozenset({"red"}))}
    ada, owner = Principal("key:x", "ada", "x", own), TopicBinding("t", "default").principal
    for said in ({"tenant_id": "default"}, {"user_id": "0"}):
        with pytest.raises(NotAllowed, match=f"{next(iter(said))}: got"):
            refuse_named_defaults(ada, said)
        refuse_named_defaults(owner, said)
    silent: list[object] = [{}, {"tenant_id": None, "user_id": "ada"}, [], None, "text"]
    for data in silent:
        refuse_named_defaults(ada, data)
