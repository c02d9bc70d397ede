"""The calls of one cluster to its groups: paced, and left alone for a while where they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import structlog

from core.actions import CloudCall, Create, Delete, Queue, Unqueue
from core.changes import CloudRequest
from core.errors import CloudBusy, CloudRefused, CloudUnsure, Forbidden, MigMissing, ZenError
from core.mig import MigSnapshot
from core.ports import Clock
from migs.manager import MigManager

log = structlog.get_logger("orchestrator")
BACK_OFF_S = 1.0
BACK_OFF_MAX_S = 60.0
_FINAL = (CloudRefused, Forbidden, MigMissing)
_PASSING = (CloudBusy, CloudUnsure)


class CloudCalls:
    """Remembers where calls failed, so that a failing region costs few calls and no time."""

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

    def spurned(self, regions: Iterable[str]) -> frozenset[str]:
        """Regions where a request for several VMs at once failed a moment ago."""
        return frozenset(region for region in regions if self._is_quiet("queue", region))

    def failed_together(self, region: str, why: str) -> None:
        """A request that was accepted failed later: not another one at once."""
        self._failed("queue", region, CloudRefused(why))

    def came_together(self, region: str) -> None:
        """What was asked for there with others is given."""
        self._failures.pop(("queue", region), None)

    async def observe(
        self, region: str, *, requests: bool = False
    ) -> MigSnapshot | ZenError | None:
        """What the group shows; an error that a human must hear of; None for a passing one."""
        if self._is_quiet("observe", region):
            return None
        try:
            observed = await self.mig(region).observe(requests=requests)
        except _PASSING as error:
            self._failed("observe", region, error)
            return None
        except _FINAL as error:
            self._failed("observe", region, error)
            return error
        self._succeeded("observe", "observe", region)
        return observed

    async def apply(self, action: CloudCall) -> ZenError | None:
        """None: accepted. A CloudBusy or CloudUnsure is repeated later with the same request id;
        any other error is final."""
        kind = kind_of(action)
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


def kind_of(action: CloudCall) -> str:
    """The word for it in rows and metrics."""
    return type(action).__name__.lower()


def is_passing(error: ZenError) -> bool:
    """Whether the call is to be repeated with the same request id."""
    return isinstance(error, _PASSING)


def request_of(action: CloudCall, cluster: str, now: datetime) -> CloudRequest:
    """The row that says that the call is to be made."""
    return CloudRequest(
        request_id=action.request_id,
        kind=kind_of(action),
        cluster=cluster,
        region=action.region,
        names=action.names,
        reason=action.reason,
        created_at=now,
        together=action.name if isinstance(action, Queue | Unqueue) else "",
        run_s=action.run_s if isinstance(action, Queue) else 0.0,
    )


def action_of(request: CloudRequest) -> CloudCall:
    """The call that was written down, to be made once more."""
    region, names = request.region, request.names
    asked = (request.request_id, request.reason)
    match request.kind:
        case "create":
            return Create(region, names, *asked)
        case "queue":
            return Queue(region, request.together, names, request.run_s, *asked)
        case "unqueue":
            return Unqueue(region, request.together, names, *asked)
        case _:
            return Delete(region, names, *asked)
