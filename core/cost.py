"""What every billed VM-second was spent on, and who caused it. Pure: the history of a VM in, shares
of its bill out.

The cloud bills a VM from RUNNING until it is off, and never less than its shortest bill. Each of
these seconds falls to exactly one share: whole microseconds are dealt out, so the shares of a VM
add up to its bill to the last one.

Who pays: an attempt pays for the time that it holds the VM. Time that nobody holds is paid by the
job that held the VM last; before the first one, by the job whose wait made the service ask for the
VM. Nobody pays for a VM that no job asked for (a floor), nor for idling beyond the idle time-out:
only a floor keeps a VM for longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from core.job import JobEvent
from core.slots import slots_of
from core.vm import Vm

SETTLE_MARGIN = timedelta(minutes=1)
"""An active VM is settled up to this long ago: what is being written just now may still say
otherwise."""
DAY_S = 86400.0
GIVE_BACK = timedelta(minutes=1)
"""Within this time after its idle time-out a VM that no floor keeps is being given back."""
_MICROSECOND = timedelta(microseconds=1)


class CostKind(StrEnum):
    """What a second of a VM was for. Everything but USEFUL is waste."""

    USEFUL = "useful"
    """A VM worked for an attempt, and what it did was not lost."""
    BOOT = "boot"
    """From RUNNING until its worker said READY: of the job that it was asked for."""
    IDLE = "idle"
    """READY (or leaving) without a lease: of the job that held it last."""
    HEDGE = "hedge"
    """All of a VM that never ran any job: of the job that it was asked for."""
    PREEMPTED = "preempted"
    """Of an attempt that had to give its VM away: what came after its last checkpoint."""
    LOST = "lost"
    """The same, of an attempt whose VM was lost."""


K = CostKind
WASTED = tuple(kind for kind in CostKind if kind is not K.USEFUL)
_SPOILT_BY: Mapping[str, CostKind] = {
    JobEvent.RECLAIMED: K.PREEMPTED,
    JobEvent.PREEMPTED: K.PREEMPTED,
    JobEvent.PREEMPTION_GRACE_OVER: K.PREEMPTED,
    JobEvent.VM_LOST: K.LOST,
    JobEvent.CLAIM_TIMEOUT: K.LOST,
    JobEvent.START_TIMEOUT: K.LOST,
    JobEvent.GANG_TIMEOUT: K.LOST,
}
"""How an attempt ends that did not end by its owner's doing."""


@dataclass(frozen=True, slots=True)
class Payer:
    """A job, and whose it is."""

    job_uid: str
    job_id: str
    tenant_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Stay:
    """One attempt on a VM."""

    payer: Payer
    gpus: int
    since: datetime
    until: datetime | None
    """None: it goes on."""
    checkpoint_at: datetime | None
    """When its last checkpoint was reported."""
    outcome: str
    """The event that ended it."""

    def holds(self, at: datetime) -> bool:
        return self.since <= at and (self.until is None or at < self.until)

    def kind(self, at: datetime) -> CostKind:
        """What its VM was for at that moment."""
        spoilt = _SPOILT_BY.get(self.outcome)
        if spoilt is None or (self.checkpoint_at is not None and at < self.checkpoint_at):
            return K.USEFUL
        return spoilt


@dataclass(frozen=True, slots=True)
class Life:
    """A VM as its bill sees it, with the attempts that are not settled yet."""

    vm_uid: str
    cluster: str
    region: str
    spot: bool
    gpus: int
    usd_per_hour: float
    running_since: datetime
    ready_at: datetime | None
    off_at: datetime | None
    """Observed off or gone; None: it lives, and costs."""
    settled_until: datetime | None
    """What came before is in the daily sums."""
    stays: tuple[Stay, ...] = ()
    """Attempts that are not settled, and the last one that is: idling after it is its job's."""
    cause: Payer | None = None
    """The job whose wait made the service ask for it; None: a floor, or nobody."""
    idle_max_s: float = 0.0
    leaving_since: datetime | None = None
    """Since when it is given back."""
    billed_at_least_s: float = 60.0

    @property
    def used(self) -> bool:
        """Only VMs that ran a job are settled before their end."""
        return bool(self.stays) or self.settled_until is not None

    def billed_until(self, now: datetime) -> datetime:
        """The end of its bill, or of what there is of it so far."""
        return billed_until(self.running_since, self.off_at, self.billed_at_least_s, now)

    def keeps_until(self, idle_since: datetime) -> datetime:
        """Until when idling is the job's after which it began; then a floor keeps the VM."""
        return idle_since + timedelta(seconds=self.idle_max_s) + GIVE_BACK

    def idle_payer(self, at: datetime, last: Stay | None) -> Payer | None:
        """Who caused it to be there at a moment when no attempt holds it."""
        if self.cause is None:
            return None
        payer, since = self.cause, self.ready_at
        if last is not None:
            payer, since = last.payer, last.until
        if since is None or at < (ends := self.keeps_until(since)):
            return payer
        given_back = self.leaving_since is not None and self.leaving_since <= ends
        return payer if given_back else None


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the bill of one VM, on one day (UTC)."""

    day: date
    kind: CostKind
    payer: Payer | None
    """None: nobody caused it."""
    life: Life
    micros: int

    @property
    def tenant_id(self) -> str:
        return self.payer.tenant_id if self.payer else ""

    @property
    def user_id(self) -> str:
        return self.payer.user_id if self.payer else ""

    @property
    def amount(self) -> Amount:
        seconds = self.micros / 1e6
        usd = seconds / 3600 * self.life.usd_per_hour
        return Amount(seconds, seconds * self.life.gpus, usd)


@dataclass(frozen=True, slots=True)
class Amount:
    """VM time, GPU time and money."""

    vm_seconds: float = 0.0
    gpu_seconds: float = 0.0
    usd: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.vm_seconds + other.vm_seconds,
            self.gpu_seconds + other.gpu_seconds,
            self.usd + other.usd,
        )


def billed_until(
    running_since: datetime, off_at: datetime | None, least_s: float, now: datetime
) -> datetime:
    """The end of a bill, or of what there is of it so far. `least_s`: the shortest bill."""
    return now if off_at is None else max(off_at, running_since + timedelta(seconds=least_s))


def vm_usd(vm: Vm, now: datetime) -> float:
    """What a VM has cost so far."""
    if vm.running_since is None:
        return 0.0
    off_at = vm.stopped_at or vm.gone_at
    end = billed_until(vm.running_since, off_at, vm.billed_at_least_s, now)
    return max(0.0, (end - vm.running_since).total_seconds()) / 3600 * vm.usd_per_hour


def final_until(life: Life, now: datetime) -> datetime | None:
    """Up to where nothing can change any more; None: it is too early for any of it."""
    first_open = min((s.since for s in life.stays if s.until is None), default=None)
    if first_open is None and life.off_at is not None:
        return life.billed_until(now)
    if not life.used:
        return None  # whether it is a hedge is known at its end
    past = now - SETTLE_MARGIN
    return past if first_open is None else min(past, first_open)


def attribute(life: Life, until: datetime) -> list[Share]:
    """The shares of the bill from where it is settled up to `until`."""
    start = life.settled_until or life.running_since
    shares: dict[tuple[date, CostKind, Payer | None], int] = {}
    for at, end, holders, last in _segments(life, start, until):
        micros = (end - at) // _MICROSECOND
        for kind, payer, part in _deal(life, at, holders, last, micros):
            key = (at.astimezone(UTC).date(), kind, payer)
            shares[key] = shares.get(key, 0) + part
    return [Share(day, kind, payer, life, n) for (day, kind, payer), n in shares.items() if n]


def _segments(
    life: Life, start: datetime, end: datetime
) -> Iterator[tuple[datetime, datetime, list[Stay], Stay | None]]:
    """Spans in which nothing changes, with the attempts that hold the VM in each, and the one that
    left it last."""
    inner = sorted(edge for edge in _edges(life, start, end) if start < edge < end)
    coming = sorted(life.stays, key=lambda s: (s.since, s.payer.job_uid), reverse=True)
    here: list[Stay] = []
    last: Stay | None = None
    for at, following in pairwise([start, *inner, max(start, end)]):
        while coming and coming[-1].since <= at:
            here.append(coming.pop())
        last = _last_to_leave((stay for stay in here if not stay.holds(at)), last)
        here = [stay for stay in here if stay.holds(at)]
        yield at, following, here, last


def _edges(life: Life, start: datetime, end: datetime) -> set[datetime]:
    edges: set[datetime | None] = {life.ready_at, *_midnights(start, end)}
    for stay in life.stays:
        edges |= {stay.since, stay.until, stay.checkpoint_at}
    idle_from = (life.ready_at, *(stay.until for stay in life.stays))
    edges |= {life.keeps_until(since) for since in idle_from if since is not None}
    return {edge for edge in edges if edge is not None}


def _last_to_leave(left: Iterable[Stay], last: Stay | None) -> Stay | None:
    """Of several that left at the same moment, the one that came last."""
    known = [*left, *(() if last is None else (last,))]
    return max(known, key=lambda s: (s.until, s.since, s.payer.job_uid), default=None)


def _midnights(start: datetime, end: datetime) -> Iterator[datetime]:
    at = day_start(start.astimezone(UTC).date()) + timedelta(days=1)
    while at < end:
        yield at
        at += timedelta(days=1)


def _deal(
    life: Life, at: datetime, holders: Sequence[Stay], last: Stay | None, micros: int
) -> Iterator[tuple[CostKind, Payer | None, int]]:
    """By the GPUs that each holds; a job that is alone pays for the whole VM, since no other job
    could use the rest of it."""
    if not holders:
        yield _unused(life, at, last), life.idle_payer(at, last), micros
        return
    weights = [slots_of(stay.gpus) for stay in holders]
    total, before = sum(weights), 0
    for stay, weight in zip(holders, weights, strict=True):
        part = micros * (before + weight) // total - micros * before // total
        before += weight
        yield stay.kind(at), stay.payer, part


def _unused(life: Life, at: datetime, last: Stay | None) -> CostKind:
    if life.off_at is not None and not life.used:
        return K.HEDGE
    booted = last is not None or (life.ready_at is not None and at >= life.ready_at)
    return K.IDLE if booted else K.BOOT


def burn(life: Life, now: datetime) -> list[tuple[Payer | None, float]]:
    """Dollars per hour at this moment, and for whom; nothing for a VM that is off."""
    if life.off_at is not None:
        return []
    holders = [stay for stay in life.stays if stay.holds(now)]
    if not holders:
        left = (stay for stay in life.stays if stay.until is not None and stay.until <= now)
        return [(life.idle_payer(now, _last_to_leave(left, None)), life.usd_per_hour)]
    total = sum(slots_of(stay.gpus) for stay in holders)
    return [(stay.payer, life.usd_per_hour * slots_of(stay.gpus) / total) for stay in holders]


def day_start(day: date) -> datetime:
    """Midnight UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


# --- settling -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settlement:
    """What goes into the daily sums of one VM, and how far it is settled then."""

    life: Life
    shares: tuple[Share, ...]
    until: datetime
    whole: bool
    """Nothing more will come of this VM."""


SETTLE_AFTER = timedelta(minutes=1)
"""So much of an active VM's bill is settled at a time, or more: what is asked for costs now is
added up over attempts that are younger than that, not over an hour of short ones."""


def settle(life: Life, now: datetime) -> Settlement | None:
    """What is final of a VM's bill; None: nothing yet."""
    until = final_until(life, now)
    if until is None:
        return None
    whole = life.off_at is not None and all(stay.until is not None for stay in life.stays)
    start = life.settled_until or life.running_since
    if until <= start and not whole:
        return None
    return Settlement(life, tuple(attribute(life, until)), max(start, until), whole)


@dataclass(frozen=True, slots=True)
class SettledBills:
    """What a round of settling did."""

    vms: int = 0
    usd: Mapping[tuple[CostKind, str], float] = field(default_factory=dict)
    """(kind, cluster) → dollars."""


def settled(settlements: Sequence[Settlement], vms: int) -> SettledBills:
    """The sum of a round that looked at so many VMs."""
    found: dict[tuple[CostKind, str], float] = {}
    for settlement in settlements:
        for share in settlement.shares:
            key = (share.kind, share.life.cluster)
            found[key] = found.get(key, 0.0) + share.amount.usd
    return SettledBills(vms, found)


DailyKey = tuple[date, str, str, str, str, bool, CostKind]
"""Day, tenant, user, cluster, region, spot, kind."""
JobDayKey = tuple[str, date, CostKind]
"""Job, day, kind."""


def sums_of(
    settlements: Iterable[Settlement],
) -> tuple[dict[DailyKey, Amount], dict[JobDayKey, Amount]]:
    """What settlements add to the daily sums, and to those of jobs."""
    daily: dict[DailyKey, Amount] = {}
    jobs: dict[JobDayKey, Amount] = {}
    for settlement in settlements:
        life = settlement.life
        for share in settlement.shares:
            place = (life.cluster, life.region, life.spot)
            key = (share.day, share.tenant_id, share.user_id, *place, share.kind)
            daily[key] = daily.get(key, Amount()) + share.amount
            if share.payer is not None:
                job = (share.payer.job_uid, share.day, share.kind)
                jobs[job] = jobs.get(job, Amount()) + share.amount
    return daily, jobs


@dataclass(frozen=True, slots=True)
class TenantBudget:
    """What a tenant's jobs may cost, with the boot and idle time that they cause. None: no limit of
    that kind."""

    usd_per_day: float | None = None
    usd_per_month: float | None = None
    warn_at: float = 0.8
    """The part of a budget at which a human is told."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a tenant's jobs have cost, useful or not, since midnight and since the first (UTC)."""

    day_usd: float = 0.0
    month_usd: float = 0.0


def add_live_spend(
    spent: Mapping[str, Spent], lives: Iterable[Life], now: datetime
) -> dict[str, Spent]:
    """Settled sums, and what lives on top of them."""
    today = now.astimezone(UTC).date()
    month = today.replace(day=1)
    found = dict(spent)
    for life in lives:
        for share in attribute(life, life.billed_until(now)):
            if share.payer is None or share.day < month:
                continue
            known, dollars = found.get(share.tenant_id, Spent()), share.amount.usd
            found[share.tenant_id] = replace(
                known,
                day_usd=known.day_usd + (dollars if share.day == today else 0.0),
                month_usd=known.month_usd + dollars,
            )
    return found
