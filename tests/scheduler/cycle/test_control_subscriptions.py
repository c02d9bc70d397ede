"""Who makes control subscriptions, and when they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.errors import BusDown
from core.names import Names
from core.vm import VmState
from scheduler.cycle.control_subscriptions import (
    AT_ONCE,
    LIST_S,
    LOOK_S,
    YOUNG_S,
    ControlSubscriptionCare,
    left_over,
)
from tests.builders import HandClock, snapshot, vm

NAMES = Names()


class Port:
    """Remembers what is there, and counts."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.made = 0
        self.down = False

    async def make(self, vm_name: str, boot_nonce: str) -> None:
        if self.down:
            raise BusDown("away")
        self.made += 1
        self.there.add(NAMES.control_subscription(vm_name, boot_nonce))

    async def remove(self, subscription: str) -> None:
        self.there.discard(subscription)

    async def all(self) -> Sequence[str]:
        return sorted(self.there)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
def care(port: Port, clock: HandClock) -> ControlSubscriptionCare:
    return ControlSubscriptionCare(port, NAMES, clock)


async def test_a_worker_that_has_heard_nothing_costs_little(
    care: ControlSubscriptionCare, port: Port, clock: HandClock
) -> None:
    """One that idles introduces itself with each heartbeat: the bus is asked ever more seldom."""
    await care.make("vm-1", "n1")
    care.seen(snapshot(vms=(vm("vm-1", boot_nonce="n1"),)))
    for _ in range(1440):
        care.doubt("vm-1", "n1")
        await care.look()
        clock.passed_s += LOOK_S
    assert port.made <= 2 + 7 + 7200 / LIST_S


async def test_one_that_was_lost_is_made_again(
    care: ControlSubscriptionCare, port: Port, clock: HandClock
) -> None:
    """Somebody deleted it, or it expired: the worker introduces itself again."""
    await care.make("vm-1", "n1")
    port.there.clear()
    clock.passed_s += LOOK_S
    care.seen(snapshot(vms=(vm("vm-1", boot_nonce="n1"),)))
    care.doubt("vm-1", "n1")
    await care.look()
    assert port.there == {NAMES.control_subscription("vm-1", "n1")}


async def test_doubts_about_a_boot_that_is_over_make_nothing(
    care: ControlSubscriptionCare, port: Port
) -> None:
    """The VM has another worker by now."""
    care.doubt("vm-1", "n1")
    care.seen(snapshot(vms=(vm("vm-1", boot_nonce="n2"),)))
    await care.look()
    assert not port.there


async def test_a_bus_that_is_away_is_the_callers_matter(
    care: ControlSubscriptionCare, port: Port
) -> None:
    """It is not remembered as made."""
    port.down = True
    with pytest.raises(BusDown):
        await care.make("vm-1", "n1")
    port.down = False
    await care.make("vm-1", "n1")
    assert port.made == 1


async def test_it_goes_with_its_vm_and_with_its_boot(
    care: ControlSubscriptionCare, port: Port
) -> None:
    """A VM that is gone, and a worker that started anew with another nonce."""
    one, two = vm("vm-1", boot_nonce="n1"), vm("vm-2", boot_nonce="n1")
    for each in (one, two):
        await care.make(each.name, each.boot_nonce)
    care.seen(snapshot(vms=(one, two)))
    await care.look()
    assert len(port.there) == 2
    await care.make("vm-1", "n2")
    care.seen(snapshot(vms=(replace(one, boot_nonce="n2"), replace(two, state=VmState.GONE))))
    await care.look()
    assert port.there == {NAMES.control_subscription("vm-1", "n2")}


async def test_one_that_is_made_before_its_vm_is_ready_stays(
    care: ControlSubscriptionCare, port: Port, clock: HandClock
) -> None:
    """It is made before READY is committed: no snapshot shows it yet."""
    care.seen(snapshot())
    await care.make("vm-1", "n1")
    for _ in range(3):
        await care.look()
        clock.passed_s += YOUNG_S / 4
        care.seen(snapshot())
    assert port.there


async def test_what_another_leader_left_goes_after_two_looks(
    care: ControlSubscriptionCare, port: Port, clock: HandClock
) -> None:
    """One look could be older than a VM that has just come."""
    mine = vm("vm-1", boot_nonce="n1")
    port.there = {"old", NAMES.control_subscription("vm-1", "n1")}
    care.seen(snapshot(vms=(mine,)))
    await care.look()
    assert "old" in port.there
    clock.passed_s += LIST_S
    await care.look()
    assert port.there == {NAMES.control_subscription("vm-1", "n1")}


async def test_nothing_is_removed_before_a_snapshot_was_seen(
    care: ControlSubscriptionCare, port: Port, clock: HandClock
) -> None:
    """A leader that knows of no VM yet knows of no leftover."""
    port.there = {"a"}
    for _ in range(3):
        await care.look()
        clock.passed_s += LIST_S
    assert port.there == {"a"}


async def test_a_fleet_that_ends_is_removed_bit_by_bit(
    care: ControlSubscriptionCare, port: Port
) -> None:
    """A thousand calls at once would keep the bus busy."""
    fleet = tuple(vm(f"vm-{n}", boot_nonce="n1") for n in range(120))
    for each in fleet:
        await care.make(each.name, each.boot_nonce)
    care.seen(snapshot(vms=fleet))
    await care.look()
    care.seen(snapshot())
    await care.look()
    assert len(port.there) == 120 - AT_ONCE
    for _ in range(2):
        await care.look()
    assert not port.there


def test_a_leftover_is_known_by_two_looks() -> None:
    """Wanted ones are none."""
    found, suspects = left_over({"a", "b", "d"}, {"a", "b", "c"}, {"b"})
    assert (found, suspects) == (["a"], frozenset({"a", "d"}))
