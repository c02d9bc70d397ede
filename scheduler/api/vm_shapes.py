"""VMs and alerts as callers read them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from core.alerts import ALERTS
from core.cost import vm_usd
from core.reads import AlertRow, VmRow
from core.vm import VmState
from scheduler.api.shapes import Time, iso, iso_or_none


class GpuOut(Struct, frozen=True):
    """One GPU, as last reported."""

    index: int
    util: float
    temp_c: float
    mem_used_mb: float
    ecc_errors: int
    bad: str
    """Why it gets no new job; empty: it may."""


class VmOut(Struct, frozen=True):
    """A VM."""

    name: str
    cluster: str
    region: str
    zone: str
    state: VmState
    busy: bool
    jobs: tuple[str, ...]
    spot: bool
    usd_per_hour: float
    requested_at: Time
    ready_at: Time | None
    idle_since: Time | None
    last_beat_at: Time | None
    gone_at: Time | None
    reason: str
    instance_id: str
    cost_usd: float
    health: str
    """What is known against it, in words; empty: nothing."""
    gpus: tuple[GpuOut, ...]


class VmsOut(Struct, frozen=True):
    """A page of VMs, newest first."""

    vms: tuple[VmOut, ...]
    total: int
    next_page_token: str | None


def vm_out(row: VmRow, now: datetime) -> VmOut:
    vm = row.vm
    return VmOut(
        name=vm.name,
        cluster=vm.cluster,
        region=vm.region,
        zone=vm.zone,
        state=vm.state,
        busy=vm.busy,
        jobs=row.job_ids,
        spot=vm.spot,
        usd_per_hour=vm.usd_per_hour,
        requested_at=iso(vm.requested_at),
        ready_at=iso_or_none(vm.ready_at),
        idle_since=iso_or_none(vm.idle_since),
        last_beat_at=iso_or_none(vm.last_beat_at),
        gone_at=iso_or_none(vm.gone_at),
        reason=vm.reason,
        instance_id=vm.instance_id,
        cost_usd=round(vm_usd(vm, now), 6),
        health=vm.health.words,
        gpus=tuple(
            GpuOut(
                index=gpu.index,
                util=gpu.util,
                temp_c=gpu.temp_c,
                mem_used_mb=gpu.mem_used_mb,
                ecc_errors=gpu.ecc_errors,
                bad=next((bad.reason for bad in vm.health.gpus if bad.index == gpu.index), ""),
            )
            for gpu in row.gpus
        ),
    )


class AlertOut(Struct, frozen=True):
    """Something a human should know."""

    id: int
    kind: str
    subject: str
    severity: str
    message: str
    raised_at: Time
    last_seen_at: Time
    cleared_at: Time | None
    count: int
    action: str = ""
    """What to do about it."""
    docs: str = ""
    """Where the reference explains it."""


class AlertsOut(Struct, frozen=True):
    """Alerts, newest first."""

    alerts: tuple[AlertOut, ...]


def alert_out(row: AlertRow) -> AlertOut:
    kind = ALERTS.get(row.kind)  # None: a kind of another release
    return AlertOut(
        id=row.alert_id,
        kind=row.kind,
        subject=row.subject,
        severity=row.severity,
        message=row.message,
        raised_at=iso(row.raised_at),
        last_seen_at=iso(row.last_seen_at),
        cleared_at=iso_or_none(row.cleared_at),
        count=row.count,
        action=kind.action if kind else "",
        docs=kind.docs if kind else "",
    )
