"""The driver between machine, bus and runner."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence

from agent.driver import Driver
from agent.events import ControlReceived, Exited, ExitKind, ShutDown, Signal, Started
from agent.json_log import JsonLog
from agent.state_machine import AgentMachine
from core.clock import SystemClock
from core.errors import BusDown
from core.job_tokens import Tokens
from core.messages import Canary, InMessage, OutMessage, Size, StartJob
from core.ports import Inbound
from core.timers import Timers
from messaging.codec import decode_heartbeat
from tests.agent.orders import ME, start, stop
from tests.workers import proofs


class Paper:
    """A bus that keeps what is published and can be told to refuse."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.refusals = 0

    async def publish(self, messages: Sequence[OutMessage], timeout_s: float) -> Sequence[str]:
        if self.refusals:
            self.refusals -= 1
            raise BusDown("not now")
        now = SystemClock().now()
        for message in messages:
            heartbeat = decode_heartbeat(InMessage("", "", now, message.body, message.attributes))
            assert not isinstance(heartbeat, Canary)
            self.said.append(str(heartbeat.status))
        return ["1"] * len(messages)

    def subscribe(self, subscription: str, *, max_messages: int = 1000) -> Inbound:
        raise AssertionError("the driver listens to nobody")


class Puppet:
    """A runner whose jobs start at once and end on SIGTERM."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.signals: list[Signal] = []
        self.until = 0.0

    def start(self, order: StartJob) -> None:
        self._driver.post(Started(order.lease_id))
        self._driver.post(ControlReceived(stop(order.lease_id)))

    def renew(self, until: float) -> None:
        self.until = until

    def give(self, lease_id: str, tokens: Tokens) -> None:
        raise AssertionError(f"{lease_id} has no tokens: {sorted(tokens)}")

    def resize(self, lease_id: str, size: Size) -> None:
        raise AssertionError(f"{lease_id} is not elastic: {size}")

    def signal(self, lease_id: str, name: Signal) -> None:
        self.signals.append(name)
        self._driver.post(Exited(lease_id, 143, "killed by SIGTERM"))
        self._driver.post(ShutDown("test"))


def driven(timers: Timers) -> tuple[Driver, Paper]:
    clock, bus = SystemClock(), Paper()
    machine = AgentMachine(ME, timers, 4, clock.monotonic())
    return Driver(
        machine, bus, proofs(ME.vm_name, ME.boot_nonce), clock, JsonLog(clock, io.StringIO())
    ), bus


async def test_from_start_to_shutdown() -> None:
    """Orders reach the runner, its answers reach the bus, Exit ends the drive."""
    driver, bus = driven(Timers())
    puppet = Puppet(driver)
    driver.post(ControlReceived(start()))
    async with asyncio.timeout(5):
        end = await driver.run(puppet)
    assert end.kind is ExitKind.SHUT_DOWN
    assert puppet.signals == [Signal.TERM]
    assert bus.said[0] == "READY"
    assert bus.said[-1] == "STOPPED"


async def test_refused_heartbeats_are_sent_again() -> None:
    """A publish that fails is repeated at the machine's pace, driven by time alone."""
    driver, bus = driven(Timers(heartbeat_s=0.01, agent_idle_off_s=0.2))
    bus.refusals = 2
    async with asyncio.timeout(5):
        end = await driver.run(Puppet(driver))
    assert end.kind is ExitKind.POWER_OFF
    assert set(bus.said) == {"READY"}
