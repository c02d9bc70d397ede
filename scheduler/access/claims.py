"""Whose a submission is: the one rule for requests and messages."""

from __future__ import annotations

from dataclasses import replace

from core.access import Principal, Right, Scope
from core.job_fields import JobSpec
from core.submit_topics import NOBODY
from core.tenants import DEFAULT_TENANT
from scheduler.access.authenticator import NotAllowed


def claimed(principal: Principal, spec: JobSpec) -> JobSpec:
    """The submission as the principal's: whose user and whose tenant it is. NotAllowed if it names
    others than the principal may submit for."""
    return replace(spec, user_id=_user(principal, spec), tenant_id=_tenant(principal, spec))


def _user(principal: Principal, spec: JobSpec) -> str:
    own = principal.user_id
    if spec.user_id in (NOBODY, own):
        return own
    if Scope.ON_BEHALF_OF in principal.scopes:
        return spec.user_id
    raise NotAllowed(
        f"user_id: got {spec.user_id}, but {principal.name} submits as {own}; a key with the scope "
        f"{Scope.ON_BEHALF_OF} may name others"
    )


def _tenant(principal: Principal, spec: JobSpec) -> str:
    tenants = principal.tenants(Right.JOBS_SUBMIT)
    if spec.tenant_id in tenants:
        return spec.tenant_id
    if spec.tenant_id == DEFAULT_TENANT and len(tenants.names) == 1:
        return next(iter(tenants.names))
    allowed = ", ".join(sorted(tenants.names)) or "none"
    raise NotAllowed(
        f"tenant_id: got {spec.tenant_id}, but {principal.name} may submit for: {allowed}; an "
        "admin can give a role for another tenant"
    )
