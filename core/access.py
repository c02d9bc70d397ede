"""Who may do what: rights, roles, grants and principals.

A right of a tenant holds where a grant names the tenant (or every tenant). A right of the service
(the fleet, the configuration, keys) holds only by a grant for every tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

ALL_TENANTS = "*"
TENANT_HEADER = "x-zen-tenant"
"""A request may narrow itself to one tenant: it then has no right for another."""
PUBLIC: Final = None
"""The right of an endpoint that everybody may call, also without credentials."""


class Right(StrEnum):
    """What an endpoint needs."""

    FLEET_READ = "fleet.read"
    JOBS_READ = "jobs.read"
    JOBS_ENVIRONMENT = "jobs.environment"
    JOBS_SUBMIT = "jobs.submit"
    JOBS_OWN = "jobs.own"
    JOBS_MANAGE = "jobs.manage"
    SECRETS = "secrets"
    COST_READ = "cost.read"
    TENANT_READ = "tenant.read"
    FLEET_OPERATE = "fleet.operate"
    CONFIG_READ = "config.read"
    CONFIG_WRITE = "config.write"
    DEAD_LETTERS = "dead_letters"
    METRICS_READ = "metrics.read"
    TENANTS_WRITE = "tenants.write"
    KEYS = "keys"
    GRANTS = "grants"
    AUDIT_READ = "audit.read"

    @property
    def meaning(self) -> str:
        """One line for people."""
        return _MEANINGS[self]

    @property
    def of_service(self) -> bool:
        """Whether only a grant for every tenant gives it."""
        return self in _OF_SERVICE


_MEANINGS: Mapping[Right, str] = {
    Right.FLEET_READ: "see clusters, regions, prices and the state of the service",
    Right.JOBS_READ: "see the tenant's jobs, logs and artifacts",
    Right.JOBS_ENVIRONMENT: "see the values of the environment of the tenant's jobs",
    Right.JOBS_SUBMIT: "submit jobs for the tenant",
    Right.JOBS_OWN: "stop and change jobs of the caller's user, and see their environment",
    Right.JOBS_MANAGE: "stop and change every job of the tenant",
    Right.SECRETS: "set, list and delete the tenant's secrets (never read them)",
    Right.COST_READ: "see what the tenant's jobs cost",
    Right.TENANT_READ: "see the tenant's quotas and usage",
    Right.FLEET_OPERATE: "see VMs, alerts and supply; drain; simulate faults",
    Right.CONFIG_READ: "see the configuration and its history",
    Right.CONFIG_WRITE: "change the configuration and roll it back",
    Right.DEAD_LETTERS: "read dead letters and send them again",
    Right.METRICS_READ: "read the metrics",
    Right.TENANTS_WRITE: "create, change and delete tenants",
    Right.KEYS: "create, list, rotate and revoke keys",
    Right.GRANTS: "give and take roles",
    Right.AUDIT_READ: "read and verify the audit log",
}
_OF_SERVICE = frozenset(
    {
        Right.FLEET_OPERATE,
        Right.CONFIG_READ,
        Right.CONFIG_WRITE,
        Right.DEAD_LETTERS,
        Right.METRICS_READ,
        Right.TENANTS_WRITE,
        Right.KEYS,
        Right.GRANTS,
        Right.AUDIT_READ,
    }
)

_VIEWER = frozenset({Right.FLEET_READ, Right.JOBS_READ, Right.COST_READ, Right.TENANT_READ})
_SUBMITTER = _VIEWER | {Right.JOBS_SUBMIT, Right.JOBS_OWN}
ROLES: Mapping[str, frozenset[Right]] = {
    "viewer": _VIEWER,
    "submitter": _SUBMITTER,
    "member": _SUBMITTER | {Right.JOBS_MANAGE, Right.JOBS_ENVIRONMENT, Right.SECRETS},
    "operator": _VIEWER
    | {
        Right.JOBS_OWN,
        Right.JOBS_MANAGE,
        Right.FLEET_OPERATE,
        Right.CONFIG_READ,
        Right.CONFIG_WRITE,
        Right.DEAD_LETTERS,
        Right.METRICS_READ,
    },
    "admin": _VIEWER
    | {
        Right.SECRETS,
        Right.TENANTS_WRITE,
        Right.KEYS,
        Right.GRANTS,
        Right.AUDIT_READ,
        Right.CONFIG_READ,
    },
}
"""The roles that every deployment has; the configuration may add its own."""


class Scope(StrEnum):
    """What a key may do besides, or is kept from."""

    ON_BEHALF_OF = "on-behalf-of"
    """Its submissions may name the user they are for."""
    READ_ONLY = "read-only"
    """It changes nothing, whatever its roles allow."""


_READS = frozenset(
    {
        Right.FLEET_READ,
        Right.JOBS_READ,
        Right.JOBS_ENVIRONMENT,
        Right.COST_READ,
        Right.TENANT_READ,
        Right.CONFIG_READ,
        Right.METRICS_READ,
        Right.AUDIT_READ,
    }
)


@dataclass(frozen=True, slots=True)
class Grant:
    """One role of one principal, for one tenant or for all."""

    principal: str
    tenant_id: str
    role: str


@dataclass(frozen=True, slots=True)
class Tenants:
    """For which tenants something is allowed."""

    names: frozenset[str] = frozenset()
    every: bool = False

    def __contains__(self, tenant_id: object) -> bool:
        return self.every or tenant_id in self.names

    def __bool__(self) -> bool:
        return self.every or bool(self.names)

    def both(self, other: Tenants) -> Tenants:
        """The tenants that are in both."""
        if self.every:
            return other
        return self if other.every else Tenants(self.names & other.names)

    @property
    def only(self) -> list[str] | None:
        """For a query: these tenants alone, or None for all."""
        return None if self.every else sorted(self.names)


EVERY_TENANT = Tenants(every=True)


def only_tenant(tenant_id: str) -> Tenants:
    """This one alone."""
    return Tenants(frozenset({tenant_id}))


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, and what the grants allow."""

    name: str
    """`key:<id>`, `user:<e-mail>`."""
    user_id: str
    """Whose jobs its submissions are."""
    label: str
    """For people: the name of the key, the e-mail address."""
    allowed: Mapping[Right, Tenants]
    scopes: frozenset[Scope] = frozenset()

    def tenants(self, right: Right) -> Tenants:
        """For which tenants the principal has the right."""
        return self.allowed.get(right, _NO_TENANT)

    def may(self, right: Right, tenant_id: str | None = None) -> bool:
        """Whether the principal has the right for the tenant; without one: for any."""
        tenants = self.tenants(right)
        return bool(tenants) if tenant_id is None else tenant_id in tenants

    def within(self, tenant_id: str) -> Principal:
        """The same, with what it may do for this tenant alone; nothing of the service."""
        only = Tenants(frozenset({tenant_id}))
        return replace(
            self,
            allowed={
                right: only
                for right, tenants in self.allowed.items()
                if tenant_id in tenants and not right.of_service
            },
        )


_NO_TENANT = Tenants()


def allowed_by(
    grants: Iterable[Grant],
    scopes: frozenset[Scope] = frozenset(),
    roles: Mapping[str, frozenset[Right]] = ROLES,
) -> dict[Right, Tenants]:
    """What the grants add up to. A role that is not known any more gives nothing."""
    found: dict[Right, Tenants] = {}
    for grant in grants:
        for right in roles.get(grant.role, frozenset()):
            every = grant.tenant_id == ALL_TENANTS
            if (right.of_service and not every) or (
                Scope.READ_ONLY in scopes and right not in _READS
            ):
                continue
            before = found.get(right, _NO_TENANT)
            names = before.names if every else before.names | {grant.tenant_id}
            found[right] = Tenants(names, before.every or every)
    return found
