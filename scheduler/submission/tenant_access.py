"""What the door knows about tenants: who may submit what. Read at its own pace, since a setting
that is a second old refuses nothing that the store's own guard would allow for long."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from config.live import LiveSettings
from core.access import Tenants
from core.cluster import ClusterSpec
from core.errors import BadInput, Fault, PriceNotConfirmed, QuotaExceeded
from core.job_fields import JobSpec
from core.job_tokens import account_fault
from core.ports import Clock
from core.queueing import QueueRule, class_of
from core.secret_references import missing_secret, project_fault, projects_of, stored_of
from core.submission import Values, nearest, shown
from core.tenants import (
    DEFAULT_TENANT,
    Consent,
    Holding,
    Quota,
    QuotaShortage,
    Tenant,
    TenantRow,
    held_by,
    machines_of,
)
from scheduler.queue.guaranteed_start import bound_s
from scheduler.queue.quotas import never_fits
from scheduler.submission.quotes import Quote, usd

FRESH_S = 1.0
CENT = 0.01
NO_QUOTA = Quota()
AHEAD_MOST = 10_000
"""Jobs that wait before a new one are counted no further."""
COUNTS_MAX = 10_000
_FIELDS = {
    "jobs": "tenant_id",
    "gpus": "gpu_count",
    "gpu_memory_gb": "gpu_memory_mb",
    "cpus": "cpu_cores",
    "memory_gb": "memory_mb",
}
"""Resource → the field of a submission that asks for it."""


class TenantReader(Protocol):
    """What is asked of the store."""

    async def tenants(self) -> Sequence[TenantRow]: ...
    async def holdings(self, tenant_id: str | None = None) -> Mapping[str, Holding]: ...
    async def queued(self, cluster: str, tier: int, tenant_id: str, most: int) -> int: ...


HasCode = Callable[[str, str], Awaitable[bool]]
"""Whether a tenant has sent that code; that it is used now is remembered."""
SecretNames = Callable[[str], Awaitable[Collection[str]]]
"""Of a tenant's own secrets. None: nobody knows them here."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What counts for a submission that says nothing itself."""

    tenant_id: str = DEFAULT_TENANT
    consent: Consent = field(default_factory=Consent)
    confirm_above_usd_per_hour: float | None = None
    new: bool = False
    """Nobody knew the tenant: this submission makes it one."""

    def agreed(self, sent: Values) -> JobSpec:
        """The submission with every consent said: its own word, else its tenant's."""
        values = {**sent}
        if values.get("spot") is None:
            values["spot"] = self.consent.spot
        if values.get("allow_larger") is None:
            values["allow_larger"] = self.consent.allow_larger
        return JobSpec(**values)

    def priced(self, spec: JobSpec, quote: Quote) -> JobSpec:
        """With what a VM may cost if the job is moved later, where prices are confirmed: its part
        of what was confirmed now, or of what needs no confirmation. Where it goes more of the
        submission's VMs may run at once than here."""
        most = self.confirm_above_usd_per_hour
        if most is None or spec.max_usd_per_hour is not None:
            return spec
        each = max(most, quote.total_usd_per_hour) / quote.vms_asked
        return replace(spec, agreed_usd_per_hour=each)

    def refuse_dear(self, spec: JobSpec, quote: Quote, confirmed_usd: float | None) -> None:
        """PriceNotConfirmed if it costs more than is bought without asking, and neither the job's
        own limit nor the caller has agreed to the price."""
        total, most = quote.total_usd_per_hour, self.confirm_above_usd_per_hour
        own = (spec.max_usd_per_hour or 0.0) * quote.vms
        if most is None or total <= max(most, own, (confirmed_usd or 0.0) + CENT / 2):
            return
        raise PriceNotConfirmed(
            f"it costs up to {usd(total)}/h in {quote.cluster} ({quote.words()}), and tenant "
            f"{self.tenant_id} buys up to {usd(most)}/h without asking: confirm it (zen submit "
            f"--yes; ?confirmed_usd_per_hour={total:.2f}), state max_usd_per_hour in the job, or "
            f"raise the tenant's own limit (zen tenants set {self.tenant_id} --confirm-above "
            f"{math.ceil(total)})",
            total,
        )


class TenantAccess:
    """Refuses at submission what could never run."""

    def __init__(
        self,
        store: TenantReader,
        settings: LiveSettings,
        clock: Clock,
        secret_names: SecretNames | None = None,
        has_code: HasCode | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._secret_names = secret_names
        self._has_code = has_code
        self._tenants: Mapping[str, Tenant] | None = None
        """None: not read yet. Nobody may pass on that, or a door that has just opened would know no
        caps, and as strict as it may be, no tenant."""
        self._read_at = 0.0
        self._lock = asyncio.Lock()
        self._begun = 0
        self._done: tuple[int, Mapping[str, Tenant]] | None = None
        """Readings for somebody unknown: how many have begun, and the last that ended."""
        self._ahead: dict[tuple[str, int, str], tuple[float, int]] = {}
        """Queue → when its jobs were counted, and how many there are since."""

    async def ahead(self, spec: JobSpec, cluster: str, more: int) -> int:
        """How many of its tenant and class wait in the cluster; `more` come now. What others let in
        within the last second is not in it."""
        key, now = (cluster, int(class_of(spec.priority)), spec.tenant_id), self._clock.monotonic()
        known = self._ahead.get(key)
        if known is None or now - known[0] >= FRESH_S:
            if known is not None:  # before the wait: others go on with what is known
                self._ahead[key] = now, known[1]
            known = now, await self._store.queued(*key, AHEAD_MOST)
            if len(self._ahead) >= COUNTS_MAX:
                self._ahead.clear()
        counted_at, count = known
        self._ahead[key] = counted_at, count + more
        return count

    async def terms(self, tenant_id: str, visible: Tenants) -> Terms:
        """What the tenant agrees to; BadInput if there is no such tenant and none may be made.
        `visible`: the tenants whose names the caller may learn."""
        settings = self._settings.current
        if settings.single_tenant and tenant_id != DEFAULT_TENANT:
            expected = (
                f"{DEFAULT_TENANT}: all jobs run as one Unix user here, and read each other's files"
                "; start the stack as root, or set single_tenant: false if the tenants may"
            )
            raise BadInput([Fault("tenant_id", shown(tenant_id), expected)])
        tenants = await self._known()
        if tenant_id not in tenants:
            tenants = await self._read_anew()  # it may have been set up a moment ago
        tenant = tenants.get(tenant_id)
        confirm = settings.confirm_above_usd_per_hour
        if tenant is None:
            if not settings.create_tenants and tenant_id != DEFAULT_TENANT:
                seen = {name for name in (*tenants, DEFAULT_TENANT) if name in visible}
                near = f" ({nearest(tenant_id, seen)})" if seen else ""
                expected = (
                    f"a tenant that was set up{near}; make it one with: zen tenants set "
                    f"{tenant_id} --weight 1"
                )
                raise BadInput([Fault("tenant_id", shown(tenant_id), expected)])
            return Terms(tenant_id, Consent(), confirm, new=tenant_id != DEFAULT_TENANT)
        own = tenant.consent.confirm_above_usd_per_hour
        return Terms(tenant_id, tenant.consent, confirm if own is None else own)

    async def check(self, spec: JobSpec, cluster: ClusterSpec) -> None:
        """BadInput with the first fault that concerns the tenant."""
        if spec.secrets:
            await self._check_secrets(spec)
        if spec.code and not await self._knows_code(spec):
            expected = f"code that tenant {spec.tenant_id} has sent (zen submit --workdir DIR)"
            raise BadInput([Fault("code", shown(spec.code), expected)])
        if spec.google_token and spec.tenant_id not in self._settings.current.google_accounts:
            words = account_fault(spec.tenant_id)
            raise BadInput([Fault("google_token", "true", "false", words)])
        tenant = (await self._known()).get(spec.tenant_id)
        if tenant is None:
            return
        if spec.priority > tenant.priority_max:
            expected = f"at most {tenant.priority_max}, the cap of tenant {tenant.tenant_id}"
            raise BadInput([Fault("priority", str(spec.priority), expected)])
        if tenant.quota == NO_QUOTA:
            return
        short = never_fits(tenant, spec, machines_of([cluster]).get(cluster.name))
        if short is not None:
            raise await self._refusal(short, cluster)

    async def _knows_code(self, spec: JobSpec) -> bool:
        return self._has_code is not None and await self._has_code(spec.tenant_id, spec.code)

    async def _check_secrets(self, spec: JobSpec) -> None:
        """That the tenant has its own, and may use others' projects. Whether Secret Manager has
        them, its answer to the job's start says."""
        tenant_id, said = spec.tenant_id, {}
        allowed = self._settings.current.secret_projects.get(tenant_id, ())
        for variable, project in projects_of(spec.secrets).items():
            said[variable] = project_fault(tenant_id, project, allowed)
        stored = stored_of(spec.secrets)
        if stored and self._secret_names is not None:
            known = await self._secret_names(tenant_id)
            for variable, name in stored.items():
                said[variable] = None if name in known else missing_secret(tenant_id, name)
        faults = [
            Fault(f"secrets.{variable}", shown(spec.secrets[variable]), "another", words)
            for variable, words in said.items()
            if words is not None
        ]
        if faults:
            raise BadInput(faults)

    async def _known(self) -> Mapping[str, Tenant]:
        now, known = self._clock.monotonic(), self._tenants
        if known is not None and now - self._read_at <= FRESH_S:
            return known
        self._read_at = now  # before the wait: others go on with what is known
        return await self._read()

    async def _read_anew(self) -> Mapping[str, Tenant]:
        """What a reading found that began after this call. All that wait share the next one: a
        client that goes on to name a tenant that there is not costs no reading for each try."""
        begun = self._begun
        async with self._lock:
            if self._done is not None and self._done[0] > begun:
                return self._done[1]
            self._begun += 1
            self._done = (self._begun, await self._read())
            return self._done[1]

    async def _read(self) -> Mapping[str, Tenant]:
        rows = await self._store.tenants()
        known = {row.tenant.tenant_id: row.tenant for row in rows if not row.tenant.deleted}
        self._tenants = known
        return known

    async def _refusal(self, short: QuotaShortage, cluster: ClusterSpec) -> QuotaExceeded:
        holding = (await self._store.holdings(short.tenant_id)).get(short.tenant_id, {})
        used = held_by(holding, machines_of([cluster])).get(short.resource, 0.0)
        field = _FIELDS[short.resource.partition(":")[0]]
        expected = (
            f"at most {short.quota:g} {short.noun}, the quota of tenant {short.tenant_id} "
            f"({used:g} in use)"
        )
        fault = Fault(field, f"{short.asked:g} {short.noun}", expected)
        words = (
            f"quota exceeded for tenant {short.tenant_id}: {short.noun} "
            f"requested={short.asked:g}, quota={short.quota:g}, current={used:g}"
        )
        return QuotaExceeded(fault, words)


def told_bound_s(
    aging_limit_s: float, cluster: ClusterSpec, longest_s: float, ahead: int
) -> float | None:
    """So long a job waits for its first start at most; None: by this rule, or behind so many, no
    such guarantee can be made. `ahead`: jobs of its tenant and class that waited when it came."""
    if cluster.queue is not QueueRule.FAIR or ahead >= AHEAD_MOST or cluster.vm_max < 1:
        return None
    return bound_s(aging_limit_s, longest_s, ahead, cluster.vm_max, shared=cluster.share)


def span(seconds: float) -> str:
    """Short: 90 s, 2 h 46 min, 3 d 4 h."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
