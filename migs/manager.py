"""MigManager: the owner of one managed instance group."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from core.actions import CloudCall, Create, Delete, Queue, Unqueue
from core.errors import CloudRefused
from core.mig import MigSnapshot, Queued
from core.ports import Compute, FlexStart


class MigManager:
    """Observes one group and applies what was decided about it. It decides nothing itself, but it
    adds nothing to a group that would kill what it is given."""

    def __init__(self, mig: str, cluster: str, region: str, compute: Compute) -> None:
        self.mig = mig
        self.cluster = cluster
        self.region = region
        self._compute = compute
        self._deadly: tuple[str, ...] | None = None
        """None: not looked at yet."""

    async def observe(self, *, requests: bool = False) -> MigSnapshot:
        """The group as the cloud shows it now; with `requests`, also what became of those for
        several VMs at once, where a group takes any."""
        # The requests first: what ends while the group is listed is news for the next look.
        seen = await self.queued() if requests else ()
        snapshot = await self._compute.observe(self.mig, self.cluster, self.region)
        self._deadly = snapshot.deadly
        return replace(snapshot, requests=seen) if seen else snapshot

    async def apply(self, action: CloudCall) -> None:
        """Returns when the cloud has accepted it; whether it happens, the next observe() tells."""
        assert action.region == self.region, f"{self.mig} got an action for {action.region}"
        match action:
            case Create():
                await self._refuse_deadly()
                await self._compute.create(self.mig, action)
            case Delete():
                await self._compute.delete(self.mig, action)
            case Queue():
                await self._refuse_deadly()
                await self.queue(action)
            case Unqueue():
                await self.unqueue(action.name, action.request_id)
            case _:
                assert_never(action)

    async def queue(self, action: Queue) -> None:
        """A group of machines that are there anyway has nothing to wait for."""
        count = len(action.names)
        raise CloudRefused(f"{self.mig} takes no requests for several VMs at once, not for {count}")

    async def queued(self) -> tuple[Queued, ...]:
        """It has none."""
        return ()

    async def unqueue(self, name: str, request_id: str) -> None:
        """It has none."""

    async def _refuse_deadly(self) -> None:
        """Nothing is added before the group's settings were seen, and were good when last seen."""
        if self._deadly is None:
            await self.observe()
        if self._deadly:
            raise CloudRefused(f"nothing is added to this group: {'; '.join(self._deadly)}")


class FlexMigManager(MigManager):
    """A group that is also grown by requests for several VMs at once, as gangs need them. Its
    instance template has the provisioning model FLEX_START then."""

    def __init__(self, mig: str, cluster: str, region: str, compute: FlexStart) -> None:
        super().__init__(mig, cluster, region, compute)
        self._flex = compute

    async def queue(self, action: Queue) -> None:
        """Returns when the cloud has accepted the request; queued() tells what became of it."""
        await self._flex.queue(self.mig, action)

    async def queued(self) -> tuple[Queued, ...]:
        """The group's requests, also those that are over."""
        return await self._flex.queued(self.mig, self.region)

    async def unqueue(self, name: str, request_id: str) -> None:
        """Give up a request that still waits; one that is over stays as it is."""
        await self._flex.unqueue(self.mig, self.region, name, request_id)
