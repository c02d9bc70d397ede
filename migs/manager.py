"""MigManager: the owner of one managed instance group."""

from __future__ import annotations

from typing import assert_never

from core.capacity import Create, Delete, MigSnapshot
from core.ports import Compute


class MigManager:
    """Observes one group and applies what was decided about it. It decides nothing itself."""

    def __init__(self, mig: str, cluster: str, region: str, compute: Compute) -> None:
        self.mig = mig
        self.cluster = cluster
        self.region = region
        self._compute = compute

    async def observe(self) -> MigSnapshot:
        """The group as the cloud shows it now."""
        return await self._compute.observe(self.mig, self.cluster, self.region)

    async def apply(self, action: Create | Delete) -> None:
        """Returns when the cloud has accepted it; whether it happens, the next observe() tells."""
        assert action.region == self.region, f"{self.mig} got an action for {action.region}"
        match action:
            case Create():
                await self._compute.create(self.mig, action)
            case Delete():
                await self._compute.delete(self.mig, action)
            case _:
                assert_never(action)
