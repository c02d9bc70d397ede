"""VMs in our groups that nobody owns: watched for a while, then taken over to be deleted.

They come from a create call that "failed" but took effect, or from a leader that died between a
call and its word. A name that is not of our making is never touched: a human is told instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from core.alerts import ORPHAN_VM
from core.changes import Change, NewVm, Snapshot
from core.cluster import ClusterSpec
from core.mig import MachineState, ManagedInstance, MigSnapshot
from core.names import Names
from core.ports import Ids
from core.timers import Timers
from core.vm import Vm, VmEvent, new_vm

# An orphan is there already: refusing it for the limit would only hide it.
NO_LIMIT = 1_000_000


class Orphans:
    """Decides on the unknown members of one cluster's groups."""

    def __init__(self, spec: ClusterSpec, names: Names, timers: Timers) -> None:
        self._spec = spec
        self._names = names
        self._timers = timers

    def adopt(
        self, observed: MigSnapshot, known: Iterable[str], snapshot: Snapshot, ids: Ids
    ) -> list[Change]:
        """Alerts for orphans that are news; rows, already DELETING and counted, for the ones that
        have been unknown for too long."""
        ours = set(known)
        unknown = {
            m.name: m for m in observed.members if m.name not in ours and self._is_ours(m.name)
        }
        changes: list[Change] = [
            ORPHAN_VM.cleared(name, snapshot.now)
            for kind, name in sorted(snapshot.open_alerts)
            if kind == ORPHAN_VM.name
            and self._lives_in(name, observed.region)
            and name not in unknown
        ]
        limit = timedelta(seconds=self._timers.orphan_after_s)
        for name, member in unknown.items():
            # The alert's row outlives a leader: the time does not start again with the next one.
            since = snapshot.open_alerts.get((ORPHAN_VM.name, name))
            if since is None:
                after_s = self._timers.orphan_after_s
                changes.append(ORPHAN_VM.raised(name, snapshot.now, after_s=after_s))
            elif snapshot.now - since >= limit:
                row = self._row(member, observed.region, ids, snapshot.now)
                changes.append(NewVm(row, vm_max=NO_LIMIT))
        return changes

    def _lives_in(self, name: str, region: str) -> bool:
        return self._is_ours(name) and self._names.parse_vm(name)[1] == region

    def _is_ours(self, name: str) -> bool:
        return self._names.is_vm_of(self._spec.name, name)

    def _row(self, member: ManagedInstance, region: str, ids: Ids, now: datetime) -> Vm:
        vm = new_vm(
            self._spec,
            region,
            uid=ids.uid(now),
            name=member.name,
            now=now,
            reason="nobody owns it",
            event=VmEvent.ADOPTED,
        )
        # Nobody asked for it, and it is billed all the same, for longer than we know of it.
        running_since = now if member.machine is MachineState.RUNNING else None
        return replace(
            vm, running_since=running_since, zone=member.zone, instance_id=member.instance_id
        )
