"""The Compute port for machines that are there anyway: no group, no cloud.

A machine runs a small service (`agent/node.py`) that starts and ends the worker on it. Asking for a
VM starts a fresh worker there, deleting it ends that worker and all it runs: so everything above
this port treats such a machine like any other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from config.settings import Settings
from core.actions import Create, Delete
from core.errors import CloudBusy, CloudRefused, CloudUnsure, MigMissing
from core.mig import MachineState, ManagedInstance, MigSnapshot
from core.ports import Clock, Cloud

CALL_S = 10.0
LINE_BYTES_MAX = 1024 * 1024
SCHEME = "unix:"
_STATES = {"RUNNING": MachineState.RUNNING}
"""What the node service says of a worker; any other one has ended."""


def open_own_machines(_: Settings, clock: Clock) -> Cloud:
    """The machines of static pools: each region is one of them."""
    return Cloud(lambda place: NodeCompute(place.node, place.zones[0], clock))


class NodeCompute:
    """core.ports.Compute for one machine, over its socket."""

    def __init__(self, address: str, zone: str, clock: Clock) -> None:
        self._path = address.removeprefix(SCHEME)
        self._zone = zone
        self._clock = clock

    async def observe(self, mig: str, cluster: str, region: str) -> MigSnapshot:
        """The workers of this machine, running or ended."""
        asked_at = self._clock.now()
        answer = await self._ask({"do": "list"}, changes=False)
        members = tuple(
            ManagedInstance(
                name=str(vm["name"]),
                zone=self._zone,
                machine=_STATES.get(str(vm["status"]), MachineState.OFF),
                instance_id=str(vm["instance_id"]),
            )
            for vm in answer["vms"]
        )
        return MigSnapshot(mig, cluster, region, len(members), True, members, asked_at)

    async def create(self, mig: str, action: Create) -> None:
        """Starts a worker of that name; one that runs already is left alone."""
        await self._tell(mig, "start", action.names)

    async def delete(self, mig: str, action: Delete) -> None:
        """Ends the worker and its jobs; returns when they have ended."""
        await self._tell(mig, "stop", action.names)

    async def _tell(self, mig: str, what: str, names: Sequence[str]) -> None:
        answer = await self._ask({"do": what, "names": list(names)}, changes=True)
        if "error" in answer:
            raise CloudRefused(f"{mig}: {answer['error']}")

    async def _ask(self, words: Mapping[str, object], *, changes: bool) -> Mapping[str, Any]:
        """One line there, one line back."""
        try:
            async with asyncio.timeout(CALL_S):
                reader, writer = await asyncio.open_unix_connection(
                    self._path, limit=LINE_BYTES_MAX
                )
                try:
                    writer.write(json.dumps(words).encode() + b"\n")
                    line = await reader.readline()
                finally:
                    writer.close()
                answer: Mapping[str, Any] = json.loads(line)
                return answer
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise MigMissing(f"no node service answers at {SCHEME}{self._path}") from error
        except (OSError, TimeoutError, ValueError) as error:
            kind = CloudUnsure if changes else CloudBusy
            why = str(error) or type(error).__name__
            raise kind(f"the node service at {SCHEME}{self._path}: {why}") from error
