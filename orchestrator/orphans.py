"""VMs in our groups that nobody owns: watched for a while, then taken over to be deleted.

They come from a create call that "failed" but took effect, or from a leader that died between a
call and its word. A name that is not of our making is never touched: a human is told instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from core.capacity import ClusterSpec, Member, MigSnapshot, Vm, VmState
from core.changes import Change, NewVm
from core.names import BadName, Names
from core.ports import Clock, Ids
from core.timers import Timers

# An orphan is there already: refusing it for the limit would only hide it.
NO_LIMIT = 1_000_000


class _Parts(Protocol):
    @property
    def ids(self) -> Ids: ...
    @property
    def clock(self) -> Clock: ...


class Orphans:
    """Remembers when each unknown member of ours was first seen."""

    def __init__(self, spec: ClusterSpec, names: Names, timers: Timers) -> None:
        self._spec = spec
        self._names = names
        self._timers = timers
        self._since: dict[str, float] = {}

    def adopt(
        self, snapshot: MigSnapshot, known: Iterable[str], parts: _Parts, now: datetime
    ) -> list[Change]:
        """Rows, already DELETING and counted, for those that have been unknown for too long."""
        ours = set(known)
        unknown = {
            m.name: m for m in snapshot.members if m.name not in ours and self._is_ours(m.name)
        }
        moment = parts.clock.monotonic()
        self._since = {
            name: at
            for name, at in self._since.items()
            if name in unknown or not name.startswith(self._base(snapshot.region))
        }
        old: list[Change] = []
        for name, member in unknown.items():
            since = self._since.setdefault(name, moment)
            if moment - since >= self._timers.orphan_after_s:
                row = self._row(member, snapshot.region, parts.ids, now)
                old.append(NewVm(row, vm_max=NO_LIMIT))
        return old

    def _base(self, region: str) -> str:
        return self._names.vm_base(self._spec.name, region)

    def _is_ours(self, name: str) -> bool:
        try:
            return self._names.parse_vm(name)[0] == self._spec.name
        except BadName:
            return False

    def _row(self, member: Member, region: str, ids: Ids, now: datetime) -> Vm:
        return Vm(
            uid=ids.uid(now),
            name=member.name,
            cluster=self._spec.name,
            region=region,
            state=VmState.DELETING,
            version=1,
            request_id="",
            gpus=self._spec.gpus,
            spot=self._spec.spot,
            usd_per_hour=0.0,
            requested_at=now,
            state_since=now,
            zone=member.zone,
            instance_id=member.instance_id,
            reason="nobody owns it",
        )
