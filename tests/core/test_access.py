"""Rights, roles and grants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.access import ROLES, Grant, Principal, Right, Scope, allowed_by

GRANTS = st.builds(
    Grant, st.just("key:a"), st.sampled_from(["*", "red", "blue"]), st.sampled_from(sorted(ROLES))
)
SCOPES = st.frozensets(st.sampled_from(Scope))


def principal(*grants: tuple[str, str], scopes: frozenset[Scope] = frozenset()) -> Principal:
    made = [Grant("key:a", tenant_id, role) for tenant_id, role in grants]
    return Principal("key:a", "ada", "nightly", allowed_by(made, scopes), scopes)


def test_a_grant_counts_for_its_tenant_alone() -> None:
    """A member of one team is nobody in another."""
    ada = principal(("red", "member"))
    assert ada.may(Right.JOBS_MANAGE, "red")
    assert not ada.may(Right.JOBS_READ, "blue")
    assert ada.tenants(Right.JOBS_READ).only == ["red"]


def test_rights_of_the_service_need_a_grant_for_every_tenant() -> None:
    """An operator of one tenant operates nothing."""
    assert not principal(("red", "operator")).may(Right.CONFIG_WRITE)
    assert principal(("*", "operator")).may(Right.CONFIG_WRITE)


def test_no_role_but_member_sees_environments() -> None:
    """Neither operators nor admins read other people's values."""
    assert {role for role, rights in ROLES.items() if Right.JOBS_ENVIRONMENT in rights} == {
        "member"
    }


def test_a_read_only_key_changes_nothing() -> None:
    """Whatever its roles allow."""
    grants = [("*", role) for role in ROLES]
    scopes = frozenset({Scope.READ_ONLY})
    allowed = set(principal(*grants, scopes=scopes).allowed)
    assert Right.JOBS_READ in allowed
    assert not allowed & {Right.JOBS_SUBMIT, Right.CONFIG_WRITE, Right.KEYS, Right.DEAD_LETTERS}


def test_a_role_that_is_gone_gives_nothing() -> None:
    """A grant may outlive a role of the configuration."""
    assert not principal(("*", "gone")).allowed


def test_every_right_is_given_by_a_role_and_has_a_meaning() -> None:
    """A right that no role has could never be used."""
    assert set(Right) == frozenset().union(*ROLES.values())
    assert all(right.meaning for right in Right)


@given(st.lists(GRANTS, max_size=6), SCOPES)
def test_a_right_comes_from_a_grant_that_has_it(
    grants: list[Grant], scopes: frozenset[Scope]
) -> None:
    """Nothing is allowed for a tenant but by a role granted for it or for all."""
    allowed = allowed_by(grants, scopes)
    for right, tenants in allowed.items():
        for tenant_id in ("red", "blue", "green"):
            given_by = [g for g in grants if g.tenant_id in ("*", tenant_id)]
            if tenant_id in tenants:
                assert any(right in ROLES[g.role] for g in given_by)


@given(st.lists(GRANTS, max_size=6), SCOPES)
def test_the_order_of_grants_does_not_matter(grants: list[Grant], scopes: frozenset[Scope]) -> None:
    """They add up."""
    one, other = allowed_by(grants, scopes), allowed_by(reversed(grants), scopes)
    assert {right: (t.every, t.every or t.names) for right, t in one.items()} == {
        right: (t.every, t.every or t.names) for right, t in other.items()
    }


@given(st.lists(GRANTS), SCOPES)
def test_a_request_for_one_tenant_never_has_more(
    grants: list[Grant], scopes: frozenset[Scope]
) -> None:
    """Narrowing takes rights away, and leaves those for the tenant as they are."""
    whole = Principal("key:a", "ada", "nightly", allowed_by(grants, scopes), scopes)
    only = whole.within("red")
    for right in Right:
        assert only.may(right, "red") == (whole.may(right, "red") and not right.of_service)
        assert not only.may(right, "blue")
        assert not only.tenants(right).every
