"""What an observation means for the bill of a VM."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from core.changes import ClearAlert, NewVm, RaiseAlert
from core.ids import RandomIds
from core.mig import MachineState, ManagedInstance
from core.names import Names
from core.timers import Timers
from core.vm import Vm, VmState
from orchestrator.reconcile.orphans import Orphans
from tests.builders import NOW, at, cluster, observed, snapshot, vm
from tests.orchestrator.folding import fold_in

V = VmState


def seen(machine: MachineState, before: Vm, now_s: float) -> Vm:
    member = ManagedInstance("vm-1", "us-central1-a", machine, "77")
    (after,) = fold_in(observed(member), cluster(), (before,), at(now_s)).vms
    return after


def test_bill_ends_when_the_machine_is_off_not_when_it_is_gone() -> None:
    """The first sight of it off counts; the second changes nothing."""
    running = vm(state=V.READY, running_since=at(0), instance_id="77")
    off = seen(MachineState.OFF, running, 10)
    assert off.stopped_at == at(10)
    assert seen(MachineState.OFF, off, 20) == off


def test_machine_that_stops_is_billed_until_it_has_stopped() -> None:
    """Also one that we have given up already."""
    running = vm(state=V.READY, running_since=at(0), instance_id="77")
    stopping = seen(MachineState.STOPPING, running, 10)
    assert stopping.stopped_at is None
    assert seen(MachineState.OFF, stopping, 15).stopped_at == at(15)


def test_cancelled_vm_that_came_up_all_the_same_is_billed() -> None:
    """A hedge that is being deleted may run before it goes: that costs its minute."""
    cancelled = vm(state=V.DELETING)
    up = seen(MachineState.RUNNING, cancelled, 3)
    assert up.running_since == at(3)
    assert up.state is V.DELETING
    assert seen(MachineState.RUNNING, up, 9) == up
    assert seen(MachineState.STARTING, cancelled, 3) == cancelled


@pytest.mark.parametrize(("region", "price"), [("us-east1", 2.0), ("asia-east1", 1.0)])
def test_orphan_has_the_price_of_its_region(region: str, price: float) -> None:
    """Nobody asked for it and it is paid all the same; in a region that was withdrawn, by the
    cheapest price we know."""
    names, timers, ids = Names(), Timers(), RandomIds(random.Random(1))
    orphans = Orphans(cluster(), names, timers)
    name = f"{names.vm_base('1xl4', region)}-abcd"
    group = observed(ManagedInstance(name, f"{region}-a", MachineState.RUNNING, "9"), region=region)
    (raised,) = orphans.adopt(group, (), snapshot(), ids)
    assert isinstance(raised, RaiseAlert)
    long_ago = {(raised.kind, raised.subject): NOW - timedelta(seconds=timers.orphan_after_s)}
    (adopted,) = orphans.adopt(group, (), replace(snapshot(), open_alerts=long_ago), ids)
    assert isinstance(adopted, NewVm)
    assert (adopted.vm.usd_per_hour, adopted.vm.running_since) == (price, NOW)


def test_orphan_that_went_by_itself_is_no_more_news() -> None:
    """Its alert is cleared; those of other regions stay."""
    names, ids = Names(), RandomIds(random.Random(1))
    here, there = (f"{names.vm_base('1xl4', r)}-abcd" for r in ("us-east1", "asia-east1"))
    seen = replace(snapshot(), open_alerts={("orphan_vm", here): NOW, ("orphan_vm", there): NOW})
    orphans = Orphans(cluster(), names, Timers())
    changes = orphans.adopt(observed(region="us-east1"), (), seen, ids)
    assert changes == [ClearAlert("orphan_vm", here, NOW)]
