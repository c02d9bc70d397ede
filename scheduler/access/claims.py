"""Whose a submission is: the one rule for requests and messages."""

from __future__ import annotations

from collections.abc import Mapping

from core.access import Principal, Right, Scope
from core.groups import Owner
from core.submit_topics import NOBODY
from core.tenants import DEFAULT_TENANT
from scheduler.access.authenticator import NotAllowed


def claimed(principal: Principal, named: Owner) -> Owner:
    """The owner of a submission of the principal's that names this one. NotAllowed if the principal
    may not submit for it."""
    return Owner(_tenant(principal, named.tenant_id), _user(principal, named.user_id))


def refuse_named_defaults(principal: Principal, data: object) -> None:
    """NotAllowed for a submission that says the default tenant or user 0 in so many words where
    they are not the principal's. Clients of other systems always send them, meaning nothing: their
    endpoints do not ask."""
    if not isinstance(data, Mapping):
        return
    tenants = principal.tenants(Right.JOBS_SUBMIT)
    if data.get("tenant_id") == DEFAULT_TENANT and DEFAULT_TENANT not in tenants:
        raise _foreign_tenant(principal, DEFAULT_TENANT)
    if data.get("user_id") == NOBODY != principal.user_id:
        raise _foreign_user(principal, NOBODY)


def _user(principal: Principal, user_id: str) -> str:
    own = principal.user_id
    if user_id in (NOBODY, own):
        return own
    if Scope.ON_BEHALF_OF in principal.scopes:
        return user_id
    raise _foreign_user(principal, user_id)


def _foreign_user(principal: Principal, user_id: str) -> NotAllowed:
    own = principal.user_id
    return NotAllowed(
        f"user_id: got {user_id}, but {principal.name} submits as {own}; a key with the scope "
        f"{Scope.ON_BEHALF_OF} may name others"
    )


def _tenant(principal: Principal, tenant_id: str) -> str:
    tenants = principal.tenants(Right.JOBS_SUBMIT)
    if tenant_id in tenants:
        return tenant_id
    if tenant_id == DEFAULT_TENANT and len(tenants.names) == 1:
        return next(iter(tenants.names))
    raise _foreign_tenant(principal, tenant_id)


def _foreign_tenant(principal: Principal, tenant_id: str) -> NotAllowed:
    allowed = ", ".join(sorted(principal.tenants(Right.JOBS_SUBMIT).names)) or "none"
    return NotAllowed(
        f"tenant_id: got {tenant_id}, but {principal.name} may submit for: {allowed}; an "
        "admin can give a role for another tenant"
    )
