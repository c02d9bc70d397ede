"""Whose a submission is."""

from __future__ import annotations

import pytest

from core.access import Principal, Right, Tenants
from core.groups import Owner
from core.submit_topics import NOBODY, TopicBinding
from core.tenants import DEFAULT_TENANT
from scheduler.access.authenticator import NotAllowed
from scheduler.access.claims import claimed


def test_a_submission_that_names_nobody_is_the_principals() -> None:
    """Its user, and its only tenant."""
    made = claimed(TopicBinding("t", "vision", "ada").principal, Owner(DEFAULT_TENANT, NOBODY))
    assert (made.tenant_id, made.user_id) == ("vision", "ada")


def test_a_principal_with_two_tenants_has_to_say_which() -> None:
    """The default tenant is none of them."""
    two = {Right.JOBS_SUBMIT: Tenants(frozenset({"a", "b"}))}
    with pytest.raises(NotAllowed, match="may submit for: a, b"):
        claimed(Principal("key:x", "0", "x", two), Owner(DEFAULT_TENANT, NOBODY))
