"""VMs and alerts as callers read them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from core.alerts import ALERTS
from core.cost import vm_usd
from core.messages import READINGS
from core.reads import AlertRow, VmRow
from core.vm import VmState
from scheduler.api.shapes import Time, shaped


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


class VmCountsOut(Struct, frozen=True):
    """VMs that are not gone."""

    requested: int
    booting: int
    idle: int
    busy: int
    draining: int
    deleting: int


class VmsOut(Struct, frozen=True):
    """A page of VMs, newest first."""

    vms: tuple[VmOut, ...]
    total: int
    next_page_token: str | None
    total_exact: bool = True
    """False: there are more than `total`; no more are counted."""


def vm_out(row: VmRow, now: datetime) -> VmOut:
    vm = row.vm
    bad = {gpu.index: gpu.reason for gpu in reversed(vm.health.gpus)}
    return shaped(
        VmOut,
        vm,
        jobs=row.job_ids,
        cost_usd=round(vm_usd(vm, now), 6),
        health=vm.health.words,
        **{
            **{name: getattr(row.readings, name) for name in READINGS},
            "gpus": tuple(
                shaped(GpuOut, gpu, bad=bad.get(gpu.index, "")) for gpu in row.readings.gpus
            ),
        },
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
    said = {"action": kind.action, "docs": kind.docs} if kind else {"action": "", "docs": ""}
    return shaped(AlertOut, row, id=row.alert_id, **said)
