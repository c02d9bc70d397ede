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

    def __init__(
        self, mig: str, cluster: str, region: str, compute: Compute, flex: FlexStart | None = None
    ) -> None:
        """`flex`: who is asked for several VMs at once, as gangs need them; the group's instance
        template has the provisioning model FLEX_START then. None: the group takes no such request.
        """
        self.mig = mig
        self.cluster = cluster
        self.region = region
        self._compute, self._flex = compute, flex
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

    async def queued(self) -> tuple[Queued, ...]:
        """The group's requests for several VMs at once, also the ones that are over."""
        return () if self._flex is None else await self._flex.queued(self.mig, self.region)

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
                if self._flex is None:
                    raise CloudRefused(f"{self.mig} takes no requests for several VMs at once")
                await self._flex.queue(self.mig, action)
            case Unqueue():
                if self._flex is not None:
                    await self._flex.unqueue(self.mig, self.region, action.name, action.request_id)
            case _:
                assert_never(action)

    async def _refuse_deadly(self) -> None:
        """Nothing is added before the group's settings were seen, and were good when last seen."""
        if self._deadly is None:
            await self.observe()
        if self._deadly:
            raise CloudRefused(f"nothing is added to this group: {'; '.join(self._deadly)}")
