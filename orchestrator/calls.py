"""The calls of one cluster to its groups: paced, and left alone for a while where they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from core.capacity import Create, Delete, MigSnapshot
from core.errors import CloudBusy, CloudRefused, CloudUnsure, Forbidden, MigMissing, ZenError
from core.ports import Clock
from migs.manager import MigManager

log = structlog.get_logger("orchestrator")
BACK_OFF_S = 1.0
BACK_OFF_MAX_S = 60.0
_FINAL = (CloudRefused, Forbidden, MigMissing)
_PASSING = (CloudBusy, CloudUnsure)


class CloudCalls:
    """Remembers where calls failed, so that a region in trouble costs few calls and no time."""

    def __init__(
        self,
        mig_of: Callable[[str], MigManager],
        clock: Clock,
        count: Callable[[str, str], None],
    ) -> None:
        self._mig_of = mig_of
        self._migs: dict[str, MigManager] = {}
        self._clock = clock
        self._count = count
        self._failures: dict[tuple[str, str], int] = {}
        self._quiet_until: dict[tuple[str, str], float] = {}

    def mig(self, region: str) -> MigManager:
        """The group in a region, also in one that the configuration has withdrawn."""
        if region not in self._migs:
            self._migs[region] = self._mig_of(region)
        return self._migs[region]

    def quiet(self, regions: Iterable[str]) -> frozenset[str]:
        """Regions that are to be left alone with creates and deletes for now."""
        return frozenset(region for region in regions if self._is_quiet("write", region))

    async def observe(self, region: str) -> MigSnapshot | ZenError | None:
        """What the group shows; an error that a human must hear of; None for a passing one."""
        if self._is_quiet("observe", region):
            return None
        try:
            snapshot = await self.mig(region).observe()
        except _PASSING as error:
            self._failed("observe", region, error)
            return None
        except _FINAL as error:
            self._failed("observe", region, error)
            return error
        self._succeeded("observe", "observe", region)
        return snapshot

    async def apply(self, action: Create | Delete) -> ZenError | None:
        """None: accepted. A CloudBusy or CloudUnsure is repeated later with the same request id;
        any other error is final."""
        kind = "create" if isinstance(action, Create) else "delete"
        try:
            await self.mig(action.region).apply(action)
        except (*_PASSING, *_FINAL) as error:
            self._failed("write", action.region, error)
            self._count(kind, error.code)
            return error
        self._succeeded("write", kind, action.region)
        return None

    def _is_quiet(self, kind: str, region: str) -> bool:
        return self._clock.monotonic() < self._quiet_until.get((kind, region), 0.0)

    def _failed(self, kind: str, region: str, error: ZenError) -> None:
        key = (kind, region)
        self._failures[key] = self._failures.get(key, 0) + 1
        wait_s = min(BACK_OFF_MAX_S, BACK_OFF_S * 2.0 ** min(self._failures[key] - 1, 10))
        self._quiet_until[key] = self._clock.monotonic() + wait_s
        if kind == "observe":
            self._count(kind, error.code)
        log.info("cloud call failed", kind=kind, region=region, why=str(error), wait_s=wait_s)

    def _succeeded(self, kind: str, counted_as: str, region: str) -> None:
        self._failures.pop((kind, region), None)
        self._quiet_until.pop((kind, region), None)
        self._count(counted_as, "ok")


def is_passing(error: ZenError) -> bool:
    """Whether the call is to be repeated with the same request id."""
    return isinstance(error, _PASSING)
