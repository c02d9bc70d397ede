"""Whether what was attributed is what was billed, after all that went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from core.cost import vm_usd
from core.cost_report import CostQuestion, usd
from sim.memory.cost import cost_report
from sim.memory.tables import Tables

_TOLERANCE_USD = 1e-6
"""Sums of doubles; far below a cent."""


def faults(tables: Tables, now: datetime) -> Iterator[str]:
    """The bills of all VMs by their own rows, beside the sums of the tenants; and for whom each VM
    was asked for."""
    today = now.astimezone(UTC).date()
    span = (today - timedelta(days=30), today + timedelta(days=1))
    report = cost_report(tables, CostQuestion("tenant", *span), now)
    told = sum(usd(costs.values()) for costs in report.rows.values())
    billed = sum(vm_usd(record.vm, now) for record in tables.vms.values())
    if abs(told - billed) > _TOLERANCE_USD:
        yield f"the tenants' sums are ${told:.6f}, the bills are ${billed:.6f}"
    for record in tables.vms.values():
        cause = record.vm.caused_by
        if cause is not None and cause not in tables.jobs:
            yield f"{record.vm.name} was asked for because of {cause}, which is no job"
