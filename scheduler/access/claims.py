"""Whose a submission is: the one rule for requests and messages."""

from __future__ import annotations

from core.access import Principal, Right, Scope
from core.groups import Owner
from core.submit_topics import NOBODY
from core.tenants import DEFAULT_TENANT
from scheduler.access.authenticator import NotAllowed


def claimed(principal: Principal, named: Owner) -> Owner:
    """The owner of a submission of the principal's that names this one. NotAllowed if the principal
    may not submit for it."""
    return Owner(_tenant(principal, named.tenant_id), _user(principal, named.user_id))


def _user(principal: Principal, user_id: str) -> str:
    own = principal.user_id
    if user_id in (NOBODY, own):
        return own
    if Scope.ON_BEHALF_OF in principal.scopes:
        return user_id
    raise NotAllowed(
        f"user_id: got {user_id}, but {principal.name} submits as {own}; a key with the scope "
        f"{Scope.ON_BEHALF_OF} may name others"
    )


def _tenant(principal: Principal, tenant_id: str) -> str:
    tenants = principal.tenants(Right.JOBS_SUBMIT)
    if tenant_id in tenants:
        return tenant_id
    if tenant_id == DEFAULT_TENANT and len(tenants.names) == 1:
        return next(iter(tenants.names))
    allowed = ", ".join(sorted(tenants.names)) or "none"
    raise NotAllowed(
        f"tenant_id: got {tenant_id}, but {principal.name} may submit for: {allowed}; an "
        "admin can give a role for another tenant"
    )
